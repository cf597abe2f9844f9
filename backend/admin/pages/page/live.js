// live keeps the samples of the last quarter of an hour: told by one stream, or asked for every few seconds where there is none to be had.
const live = (() => {
  const kept = 900;
  let samples = [], last = null, heard = 0, stream = null, polling = false, log = null;
  const watchers = [], logWatchers = [];
  const dot = document.getElementById('link');

  function linked(state, text) {
    dot.dataset.state = state;
    dot.setAttribute('aria-label', text);
    dot.title = text;
  }

  function take(body) {
    last = body;
    heard = performance.now();
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

  async function poll() {
    const got = await get('/live', { since: since() });
    if (!polling) return; // the stream is back
    if (got.ok) {
      take(got.body);
      linked('poll', 'Asked every 3 seconds');
    } else {
      linked('down', got.problem);
    }
    setTimeout(poll, 3000);
  }

  // A browser has six connections to one host for all its windows, and a stream takes one: three pages have streams, and the others ask. A page that nobody
  // sees gives its own up.
  const seats = 3;
  let release = null;
  async function seat() {
    if (release || !navigator.locks) return true;
    for (let n = 0; n < seats; n++) {
      const got = await new Promise((resolve) => {
        navigator.locks.request('desk-stream-' + n, { ifAvailable: true }, (lock) => {
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

  function instead() { // of a stream
    if (!polling) {
      polling = true;
      poll();
    }
    setTimeout(() => { if (!document.hidden && polling) open(); }, 30_000);
  }

  let opening = false;
  async function open() {
    if (opening) return;
    opening = true;
    const seated = await seat();
    opening = false;
    if (stream) stream.close();
    if (!seated) {
      instead();
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
      if (stream.readyState !== EventSource.CLOSED) return; // it tries again by itself
      close();
      instead();
    };
  }

  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) open();
    else close();
  });

  return {
    start: open,
    now: () => new Date(last ? last.now + performance.now() - heard : Date.now()), // by the backend's clock: a browser's may be wrong
    watch(w) { watchers.push(w); if (last) w(samples, last); },
    onLog(w) { logWatchers.push(w); }, // somebody, perhaps this page, has done something
    recent(seconds) {
      if (!samples.length) return [];
      const from = samples[samples.length - 1].at - seconds * 1000;
      return samples.filter((s) => s.at > from);
    },
  };
})();

// sums adds the counts of some samples up.
function sums(samples) {
  const all = {};
  for (const s of samples) for (const [key, n] of Object.entries(s.counts)) all[key] = (all[key] || 0) + n;
  return all;
}

// minutes is a choice of the span that figures are about. It is remembered in this browser.
function minutes(changed) {
  let chosen = Number(sessionStorage.getItem('desk-span')) || 300;
  const el = h('fieldset', { class: 'span' }, h('legend', { class: 'unseen' }, 'Span'), [[60, '1 min'], [300, '5 min'], [900, '15 min']].map(([seconds, name]) =>
    h('label', null, h('input', { type: 'radio', name: 'span', value: String(seconds), checked: seconds === chosen, onchange: () => {
      chosen = seconds;
      sessionStorage.setItem('desk-span', String(seconds));
      changed();
    } }), h('span', null, name))));
  return { el, seconds: () => chosen };
}
