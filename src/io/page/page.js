'use strict';
// What the pages of edged and of edgecontroller share; `load` is of the one or the other.
// Whatever comes from a pod is put in as text: `el` and `say` make no elements of it.

const POLL_MS = 2000;
const BACKOFF_MAX_MS = 30000;
const ANSWER_MS = 20000;
// Of the time, polling takes a tenth at most.
const POLL_PART = 10;
const LOG_LINES = 500;
const LOG_CHARS_MAX = 1 << 20;

const $ = (id) => document.getElementById(id);
const ROLES = {
  table: 'table', thead: 'rowgroup', tbody: 'rowgroup', tr: 'row', td: 'cell', th: 'columnheader',
};

function el(name, attributes, ...children) {
  const it = document.createElement(name);
  // On a narrow screen a table is laid out as blocks, and would lose its meaning.
  if (ROLES[name]) it.setAttribute('role', ROLES[name]);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  it.append(...children.filter((child) => child || child === 0));
  return it;
}

function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// What is the same stays, so that a selection does; and so does the focus.
function fill(id, made) {
  const parent = $(id);
  const focused = document.activeElement && document.activeElement.id;
  made.forEach((it, at) => {
    const old = parent.children[at];
    if (!old) parent.append(it);
    else if (!old.isEqualNode(it)) old.replaceWith(it);
  });
  while (parent.children.length > made.length) parent.lastElementChild.remove();
  if (parent.closest('table')) parent.closest('table').hidden = !made.length;
  const found = focused && $(focused);
  if (found && found !== document.activeElement) found.focus({ preventScroll: true });
}

function row(names, cells) {
  const cell = (it, at) => el('td', { 'data-of': names[at] }, el('span', {}, ...[it].flat()));
  return el('tr', {}, ...cells.map(cell));
}

const mark = (good, text) =>
  el('span', { class: good ? 'good' : 'bad' }, (good ? '✓ ' : '▲ ') + text);
const fact = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));

// ---- time ----

// By the agent's clock, which may differ from that of this machine. NaN: it is not set.
let now = Date.now();

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return s + 's';
  if (s < 7200) return Math.floor(s / 60) + 'm';
  if (s < 172800) return Math.floor(s / 3600) + 'h' + Math.floor(s / 60) % 60 + 'm';
  return Math.floor(s / 86400) + 'd';
}

function age(time) {
  const ms = now - Date.parse(time);
  return isNaN(ms) ? '' : span(ms);
}

const ago = (time) => age(time) && age(time) + ' ago';

// ---- requests ----

class Refused extends Error {
  constructor(code, text) {
    super(text.trim() || 'status ' + code);
    this.code = code;
  }
}

let spentMs = 0;
let asking;

// The token is for this tab alone, and is sent only in a header, where it is needed.
const NEEDS_TOKEN = /^.(containerLogs|edgecontroller)\//;

function wantToken(why) {
  asking = asking || new Promise((done) => {
    const dialog = $('ask');
    say('ask-why', why);
    $('token').value = '';
    dialog.returnValue = '';
    dialog.onclose = () => {
      const text = $('token').value;
      $('token').value = '';
      asking = undefined;
      if (dialog.returnValue) sessionStorage.setItem('token', text);
      done(dialog.returnValue);
    };
    dialog.showModal();
  });
  return asking;
}

async function request(path, ends) {
  for (;;) {
    const signal = ends || AbortSignal.timeout(ANSWER_MS);
    const token = NEEDS_TOKEN.test(path) && sessionStorage.getItem('token');
    const headers = token ? { Authorization: 'Bearer ' + token } : {};
    const began = performance.now();
    const answer = await fetch(path, { headers, signal });
    spentMs += performance.now() - began;
    if (answer.ok) return answer;
    const text = await answer.text();
    if (answer.status !== 401) throw new Refused(answer.status, text);
    if (sessionStorage.getItem('token') === token) sessionStorage.removeItem('token');
    if (!await wantToken(text)) throw new Refused(401, text);
  }
}

const json = async (path) => (await request(path)).json();

// ---- what is shown ----

const ended = (it) => `${it.reason || 'Ended'}, exit code ${it.exitCode}`;

function stateOf(status) {
  const { waiting, running, terminated } = status.state || {};
  if (running) return mark(status.ready, status.ready ? 'Running' : 'Running, not ready');
  const reason = waiting && waiting.reason || 'Waiting';
  if (/^(Waiting|PodInitializing|ContainerCreating)$/.test(reason) && !terminated) return reason;
  if (waiting) return mark(false, reason);
  return mark(terminated.exitCode === 0, ended(terminated));
}

function more(status) {
  const state = status.state || {};
  const at = state.waiting || state.terminated || {};
  const last = status.lastState && status.lastState.terminated;
  const lines = [at.message];
  if (state.running) lines.push('for ' + age(state.running.startedAt));
  if (last) lines.push(`before: ${ended(last)}, ${ago(last.finishedAt)}`);
  return lines.filter(Boolean).map((line) => el('small', {}, line));
}

const CONTAINER = ['Container', 'State', 'Restarts', 'Image', 'Log'];

function podRows(pod) {
  const { metadata, spec, status = {} } = pod;
  const name = `${metadata.namespace}/${metadata.name}`;
  const state = metadata.deletionTimestamp ? 'Terminating' : status.reason || status.phase;
  const about = [state, status.podIP, status.startTime && 'age ' + age(status.startTime)];
  const head = el('th', { colspan: 5, scope: 'rowgroup', role: 'rowheader' }, name,
    el('small', {}, about.filter(Boolean).join(' · ')),
    status.message && el('small', {}, status.message));
  const rows = [el('tr', { class: 'pod' }, head)];
  for (const [kind, list] of [['init', 'initContainers'], ['', 'containers']]) {
    const statuses = status[kind ? 'initContainerStatuses' : 'containerStatuses'] || [];
    for (const container of spec[list] || []) {
      const its = statuses.find((it) => it.name === container.name) || {};
      const of = `${name}/${container.name}`;
      const label = 'Log of ' + of;
      rows.push(row(CONTAINER, [[container.name, kind && el('small', {}, kind)],
        [stateOf(its), ...more(its)], its.restartCount || 0, container.image,
        el('button', { id: 'log-of ' + of, 'data-log': of, 'aria-label': label }, 'Log')]));
    }
  }
  return rows;
}

const IMAGE = ['Image', 'Containers', 'State'];

function imageRows(pods, pulls) {
  const images = new Map();
  const count = (image, by, state) => {
    const known = images.get(image) || { count: 0, state: 'not here' };
    images.set(image, { count: known.count + by, state: state || known.state });
  };
  for (const { spec, status = {} } of pods) {
    const statuses = [...status.containerStatuses || [], ...status.initContainerStatuses || []];
    for (const { name, image } of [...spec.initContainers || [], ...spec.containers || []]) {
      const its = statuses.find((it) => it.name === name);
      count(image, 1, its && its.imageID && 'here');
    }
  }
  for (const [image, ms] of pulls) count(image, 0, 'being pulled for ' + span(ms));
  return [...images].sort().map(([image, it]) => row(IMAGE, [image, it.count, it.state]));
}

const EVENT = ['Last', 'Type', 'Reason', 'Object', 'Message'];
const EVENTS_SHOWN = 100;

function eventRows(events) {
  const at = (it) => Date.parse(it.lastTimestamp) || 0;
  const newest = events.slice().sort((one, other) => at(other) - at(one)).slice(0, EVENTS_SHOWN);
  return newest.map((it) => row(EVENT, [ago(it.lastTimestamp),
    it.type === 'Warning' ? mark(false, it.type) : it.type, it.reason,
    `${it.involvedObject.kind} ${it.involvedObject.name}`,
    [it.message, it.count > 1 && el('small', {}, it.count + ' times')]]));
}

function showNode(name, facts, pods, pulls, events) {
  $('node').hidden = false;
  say('node-name', name);
  fill('facts', facts);
  fill('pods', pods.flatMap(podRows));
  $('no-pods').hidden = pods.length > 0;
  fill('images', imageRows(pods, pulls));
  fill('events', eventRows(events));
}

// ---- polling ----

let timer;
let isBusy = false;
let isDue = false;
let failures = 0;
let answeredAt;

async function poll() {
  clearTimeout(timer);
  isDue = isBusy;
  if (document.hidden || isBusy) return;
  isBusy = true;
  spentMs = 0;
  let waitMs;
  try {
    await load();
    failures = 0;
    answeredAt = new Date();
    say('state', 'Up to date');
    document.body.classList.remove('old');
    waitMs = Math.min(BACKOFF_MAX_MS, Math.max(POLL_MS, spentMs * POLL_PART));
  } catch (error) {
    failures += 1;
    const since = answeredAt && answeredAt.toLocaleTimeString();
    say('state', '▲ ' + (error.code ? error.message : 'No answer')
      + (since ? `, since ${since}: what is shown is from then` : ''));
    document.body.classList.add('old');
    // Without a token there is nothing to look at until the page is reloaded.
    if (error.code !== 401) waitMs = Math.min(BACKOFF_MAX_MS, POLL_MS * 2 ** (failures - 1));
  }
  isBusy = false;
  if (isDue) waitMs = 0;
  if (waitMs !== undefined) timer = setTimeout(poll, waitMs);
}

// ---- the log ----

let reading;
let logOf;
let keptChars = 0;

function appendLog(text) {
  const out = $('log-text');
  const isAtEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
  out.append(text);
  for (keptChars += text.length; keptChars > LOG_CHARS_MAX && out.childNodes.length > 1;) {
    keptChars -= out.firstChild.length;
    out.firstChild.remove();
  }
  if (isAtEnd) out.scrollTop = out.scrollHeight;
}

async function readLog() {
  if (reading) reading.abort();
  const mine = reading = new AbortController();
  const previous = $('log-previous').getAttribute('aria-pressed') === 'true';
  keptChars = 0;
  $('log-text').replaceChildren();
  say('log-state', 'Connecting');
  try {
    const path = '/containerLogs/' + logOf.split('/').map(encodeURIComponent).join('/');
    const query = `?follow=${!previous}&previous=${previous}&tailLines=${LOG_LINES}`;
    const answer = await request(path + query, mine.signal);
    say('log-state', previous ? 'The run before' : 'Following');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      appendLog(value);
    }
    say('log-state', previous ? 'The run before' : 'The container or the connection has ended.');
  } catch (error) {
    const why = error.code ? error.message : 'The connection was lost.';
    if (!mine.signal.aborted) say('log-state', '▲ ' + why);
  }
}

function openLog(of) {
  logOf = of;
  say('log-title', of);
  $('log-previous').setAttribute('aria-pressed', 'false');
  $('log').showModal();
  readLog();
}

$('log').addEventListener('close', () => {
  reading.abort();
  const opener = $('log-of ' + logOf);
  if (opener) opener.focus();
});
$('log-close').onclick = () => $('log').close();
$('log-again').onclick = readLog;
$('log-previous').onclick = ({ target }) => {
  target.setAttribute('aria-pressed', target.getAttribute('aria-pressed') !== 'true');
  readLog();
};
document.addEventListener('click', ({ target }) => {
  if (target.dataset && target.dataset.log) openLog(target.dataset.log);
});
document.addEventListener('visibilitychange', poll);
for (const it of document.querySelectorAll('table, thead, tbody, tr, th')) {
  it.setAttribute('role', ROLES[it.localName]);
}
addEventListener('load', poll);
