'use strict';
// The page of edged: its own node.

let known = {};

function linked(ms, trouble) {
  if (ms != null) return mark(true, 'connected for ' + span(ms));
  return mark(false, 'not connected: ' + (trouble || 'not yet'));
}

function edgedFacts(it) {
  const ready = (trouble) => mark(!trouble, trouble ? 'not ready: ' + trouble : 'ready');
  const { cloud, tunnel, pressures, manifestTrouble: wrong } = it;
  const facts = [fact('edged', `${it.version}, up ${span(it.uptimeMs)}`),
    fact('Pods', `${it.podsWanted} wanted, ${it.podsRunning} running`),
    fact('Runtime', ready(it.runtimeTrouble), el('small', {}, it.runtime)),
    fact('Network of pods', ready(it.networkTrouble)),
    fact('Cloud', cloud ? linked(cloud.up_ms, cloud.trouble) : 'none is configured')];
  if (tunnel) facts.push(fact('Stream tunnel', linked(tunnel.upMs, tunnel.trouble)));
  if (cloud) {
    const trouble = cloud.store_trouble || cloud.store_loss;
    facts.push(fact('Store', mark(!trouble, trouble || cloud.objects + ' objects')));
  }
  if (pressures) {
    facts.push(fact('Pressure', mark(!pressures.length, pressures.join(', ') || 'none')));
  }
  const files = wrong.length ? 'not used:\n' + wrong.join('\n') : 'all read';
  facts.push(fact('Manifests', mark(!wrong.length, files)));
  return facts;
}

const DEVICE = ['Device', 'State', 'Mapper', 'Reported'];

function showDevices(devices) {
  if (!$('devices')) {
    const head = el('thead', {}, el('tr', {}, ...DEVICE.map((it) => el('th', {}, it))));
    const table = el('table', {}, head, el('tbody', { id: 'devices' }));
    $('images').closest('table').after(el('h2', {}, 'Devices'), table);
  }
  fill('devices', devices.map(({ metadata: of, state, mapper, trouble, properties }) => {
    const last = properties.map((it) => it.reportedAt || '').sort().pop();
    const name = [of.namespace, of.name].filter(Boolean).join('/');
    return row(DEVICE, [name, [state, trouble && mark(false, trouble)], mapper, ago(last)]);
  }));
}

async function load() {
  const status = await json('/edged/status');
  now = Date.parse(status.time);
  if (status.revision !== known.revision || status.uptimeMs < known.uptimeMs) {
    const [pods, events] = await Promise.all([json('/pods'), json('/events')]);
    known = { revision: status.revision, pods: pods.items || [], events: events.items || [] };
  }
  known.uptimeMs = status.uptimeMs;
  say('title', status.node);
  document.title = status.node + ' – edged';
  if (status.devices) showDevices((await json('/edged/devices')).items || []);
  showNode('Node', edgedFacts(status), known.pods, status.pulls, known.events);
}
