// live holds the samples of the last fifteen minutes. It receives them by an event stream, or polls if there is no stream.
const live = (() => {
  const kept = 900;
  let samples = [], last = null, received = 0, stream = null, polling = false, log = null;
  const watchers = [], logWatchers = [];
  const dot = document.getElementById('link'), lost = document.getElementById('lost');

  function linked(state, text) {
    dot.dataset.state = state;
    dot.setAttribute('aria-label', text);
    dot.title = text;
    lost.textContent = state === 'down' ? 'No connection' : '';
  }

  function take(body) {
    last = body;
    received = performance.now();
    const newest = samples.length ? samples[samples.length - 1].at : 0;
    const fresh = body.samples.filter((s) => s.at > newest);
    samples = samples.concat(fresh).slice(-kept);
    for (const w of watchers) w(samples, body);
    const totals = samples.length ? samples[samples.length - 1].totals : null;
    if (totals) {
      if (log !== null && totals.log !== log) for (const w of logWatchers) w();
      log = totals.log;
    }
  }

  const since = () => (samples.length ? samples[samples.length - 1].at : 0);

  // One timer each: a stream that connects and fails repeatedly starts no second series of requests.
  let pollTimer, openTimer;
  async function poll() {
    clearTimeout(pollTimer);
    const got = await get('/live', { since: since() });
    if (!polling) return; // the stream is back
    if (got.ok) {
      take(got.body);
      linked('poll', 'Polling every 3 seconds');
    } else {
      linked('down', got.problem);
    }
    pollTimer = setTimeout(poll, 3000);
  }

  // A browser opens six connections per host for all its windows, and a stream occupies one. At most three pages have a stream, and the others
  // poll. A hidden page releases its stream.
  const slots = 3;
  let release = null;
  async function acquireSlot() {
    if (release || !navigator.locks) return true;
    for (let n = 0; n < slots; n++) {
      const got = await new Promise((resolve) => {
        navigator.locks.request('admin-stream-' + n, { ifAvailable: true }, (lock) => {
          resolve(Boolean(lock));
          return lock ? new Promise((done) => { release = done; }) : undefined;
        });
      });
      if (got) return true;
    }
    return false;
  }

  function close() {
    if (stream) stream.close();
    if (release) release();
    stream = release = null;
  }

  function pollInstead() {
    if (!polling) {
      polling = true;
      poll();
    }
    clearTimeout(openTimer);
    openTimer = setTimeout(() => { if (!document.hidden && polling) open(); }, 30_000);
  }

  let opening = false;
  async function open() {
    if (opening) return;
    opening = true;
    const acquired = await acquireSlot();
    opening = false;
    if (document.hidden) { // it was hidden meanwhile
      close();
      return;
    }
    if (stream) stream.close();
    if (!acquired) {
      pollInstead();
      return;
    }
    stream = new EventSource('/admin/v1/live/events?since=' + since());
    stream.addEventListener('live', (e) => {
      polling = false;
      linked('live', 'Live');
      take(JSON.parse(e.data));
    });
    stream.onerror = () => {
      linked('down', 'Connecting');
      if (stream.readyState !== EventSource.CLOSED) return; // the browser reconnects
      close();
      pollInstead();
    };
  }

  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) open();
    else close();
  });

  return {
    start: open,
    now: () => new Date(last ? last.now + performance.now() - received : Date.now()), // the backend's clock; the browser's may be wrong
    watch(w) { watchers.push(w); if (last) w(samples, last); },
    onLog(w) { logWatchers.push(w); }, // called after every admin action
    recent(seconds) {
      if (!samples.length) return [];
      const from = samples[samples.length - 1].at - seconds * 1000;
      return samples.filter((s) => s.at > from);
    },
  };
})();

// sums adds up the counts of samples.
function sums(samples) {
  const all = {};
  for (const s of samples) for (const [key, n] of Object.entries(s.counts)) all[key] = (all[key] || 0) + n;
  return all;
}

// minutes selects the time span of the counts. The browser stores the choice for the tab.
function minutes(changed) {
  let chosen = Number(sessionStorage.getItem('admin-span')) || 300;
  const el = h('fieldset', { class: 'span' }, h('legend', { class: 'unseen' }, 'Time span'), [[60, '1 min'], [300, '5 min'], [900, '15 min']].map(([seconds, name]) =>
    h('label', null, h('input', { type: 'radio', name: 'span', value: String(seconds), checked: seconds === chosen, onchange: () => {
      chosen = seconds;
      sessionStorage.setItem('admin-span', String(seconds));
      changed();
    } }), h('span', null, name))));
  return { el, seconds: () => chosen };
}
