// What changes while the page is open, over server-sent events. A stream may be refused, cut or silent, so each is backed by asking now and then; a
// page that nobody looks at asks for nothing.
const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});
const spread = (ms) => ms * (0.75 + Math.random() / 2); // thousands of pages must not ask in step

// watchSale tells of the sale's state and units left for as long as the page is seen.
function watchSale(tell) {
  const again = 60000; // before a refused stream is tried once more
  let source, asking, listening; // the stream, and the timers of what comes next
  let heard = 0; // events
  const ask = async () => {
    clearTimeout(asking);
    const before = heard;
    const answer = await call('GET', salePath);
    // An event that came meanwhile is newer than this answer may be.
    if (answer.status === 200) tell(heard === before ? answer.body : { ...answer.body, state: undefined, left: undefined });
    if (!document.hidden && !source) asking = setTimeout(ask, spread(Math.max(4000, answer.wait * 1000)));
  };
  const listen = () => {
    source = new EventSource(salePath + '/events');
    const hear = (e) => { heard++; tell(JSON.parse(e.data)); };
    source.addEventListener('state', hear);
    source.addEventListener('left', hear);
    source.addEventListener('error', () => {
      if (source?.readyState !== EventSource.CLOSED) return; // it comes back by itself
      stop();
      ask();
      listening = setTimeout(() => { if (!document.hidden) { clearTimeout(asking); listen(); } }, spread(again));
    });
  };
  const stop = () => { source?.close(); source = undefined; clearTimeout(asking); clearTimeout(listening); };
  const start = () => { stop(); if (!document.hidden) { ask(); listen(); } };
  document.addEventListener('visibilitychange', start);
  addEventListener('online', start);
  addEventListener('pagehide', stop);
  addEventListener('pageshow', (e) => { if (e.persisted) start(); });
  start();
}

// follow tells of an order until it can change no more, the token is no good, or the signal stops it. Where there is no stream to be had, it asks.
async function follow(id, token, signal, tell) {
  const over = new AbortController();
  signal.addEventListener('abort', () => over.abort(), { once: true });
  const look = async (wait) => {
    const answer = await call('GET', orderPath(id) + (wait ? '?wait=10s' : ''), { token, timeout: 45000 });
    if (signal.aborted) return answer;
    if ([200, 401, 404].includes(answer.status)) tell(answer);
    const { status, pay_by: due } = answer.body;
    if (answer.status === 401 || status === 'paid' || status === 'cancelled' || (status === 'created' && !due)) over.abort();
    return answer;
  };
  while (!over.signal.aborted) {
    const streamed = await stream(orderPath(id) + '/events', token, over.signal, () => look(false));
    if (over.signal.aborted) return;
    const answer = await look(!streamed);
    const final = answer.body.status === 'created';
    await pause(spread(streamed || answer.status !== 200 ? Math.max(2000, answer.wait * 1000) : final ? 15000 : 300), over.signal);
  }
}

// stream calls heard after each event until the stream ends. False: there is none to be had. EventSource cannot send a token.
async function stream(path, token, signal, heard) {
  try {
    const response = await fetch(path, { headers: { Accept: 'text/event-stream', Authorization: 'Bearer ' + token }, signal, cache: 'no-store', credentials: 'omit' });
    if (!response.ok || !response.body) return false;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let line = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const lines = (line + value).split('\n');
      line = lines.pop();
      if (lines.some((l) => l.startsWith('data:'))) await heard();
    }
  } catch {
    return false; // cut, or given up
  }
}

