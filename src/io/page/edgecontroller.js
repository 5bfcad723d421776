'use strict';
// All nodes; one of them as edged shows it.

const NODE = ['Node', 'Ready', 'Pressure', 'Link', 'Last seen', 'Pods'];
function links(it) {
  return [mark(it.connected, it.connected ? 'connected' : 'not connected'),
    el('small', {}, it.tunnel ? 'with a stream tunnel' : 'no stream tunnel')];
}

function ready(conditions) {
  const { status, message } = conditions.find((it) => it.type === 'Ready') || {};
  if (status === 'True') return [mark(true, 'ready')];
  return [mark(false, status === 'False' ? 'not ready' : 'unknown'), el('small', {}, message)];
}

function pressed(conditions) {
  const is = (it) => it.type !== 'Ready' && it.status !== 'False';
  const all = conditions.filter(is).map((it) => it.type).join(', ');
  return mark(!all, all || 'none');
}

const DEVICE = ['Device', 'Protocol', 'State', 'Reported', 'Last online'];

function deviceRow({ namespace, name, protocol, status }) {
  const { twins = [], state, lastOnlineTime } = status || {};
  const values = twins.filter((it) => it.reported)
    .map((it) => `${it.propertyName} ${it.reported.value}`);
  return row(DEVICE, [namespace + '/' + name, protocol, state, values.join(', '),
    ago(lastOnlineTime)]);
}

const JOB = ['Job', 'Phase', 'Reason'];

function show(id, title, names, rows) {
  if (!$(id)) {
    const head = el('thead', {}, el('tr', {}, ...names.map((it) => el('th', {}, it))));
    const table = el('table', {}, head, el('tbody', { id }));
    $('images').closest('table').after(el('h2', {}, title), table);
  }
  fill(id, rows);
}

const seen = (it) => ago(it.seen) || 'never';

function nodeRow(it, chosen) {
  const name = el('button', { class: 'name', id: 'node-of ' + it.name, 'data-node': it.name,
    'aria-pressed': it.name === chosen }, it.name);
  const { conditions, pods } = it;
  return row(NODE, [name, ready(conditions), pressed(conditions), links(it), seen(it), pods]);
}

async function load() {
  now = Date.now();
  const match = $('match').value.trim();
  const { nodes, total } = await json('/edgecontroller/nodes?match=' + encodeURIComponent(match));
  const chosen = decodeURIComponent(location.hash.slice(1)) || nodes.length === 1 && nodes[0].name;
  say('title', 'edgecontroller');
  document.title = 'edgecontroller';
  $('nodes').hidden = false;
  say('count', `${nodes.length} of ${total} shown`);
  fill('node-rows', nodes.map((it) => nodeRow(it, chosen)));
  const one = chosen && await json('/edgecontroller/nodes/' + encodeURIComponent(chosen))
    .catch((it) => { if (it.code !== 404) throw it; });
  $('node').hidden = !one;
  if (!one) return;
  const { row: it, node, pods, devices, jobs, events } = one;
  const { nodeInfo = {}, addresses = [] } = node.status || {};
  const { kubeletVersion, containerRuntimeVersion, osImage, kernelVersion } = nodeInfo;
  showNode('Node ' + chosen, [fact('Ready', ...ready(it.conditions)),
    fact('Pressure', pressed(it.conditions)), fact('Link', ...links(it)),
    fact('Last seen', seen(it)), fact('Agent', kubeletVersion),
    fact('Runtime', containerRuntimeVersion), fact('System', osImage, ' ', kernelVersion),
    fact('Address', addresses.map((it) => it.address).join(' '))], pods, [], events);
  show('jobs', 'Jobs', JOB, jobs.map((it) => row(JOB, [it.name, it.phase, it.reason])));
  show('devices', 'Devices', DEVICE, devices.map(deviceRow));
}

addEventListener('hashchange', poll);
$('match').addEventListener('input', poll);
document.addEventListener('click', ({ target }) => {
  const { node } = target.dataset || {};
  if (node) location.hash = encodeURIComponent(node);
});
