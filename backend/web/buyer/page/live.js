// Updates over server-sent events. A stream may be refused, cut or silent, so polling backs it. A hidden page sends no requests.
const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});
const spread = (ms) => ms * (0.75 + Math.random() / 2); // so that thousands of pages do not poll together

// watchSale calls update with the state and the units left of the sale while the page is visible.
function watchSale(update) {
  const retryStream = 60000;
  let source, pollTimer, streamTimer;
  let events = 0;
  const poll = async () => {
    clearTimeout(pollTimer);
    const before = events;
    const answer = await call('GET', salePath);
    // An event that arrived in the meantime may be newer than this response.
    if (answer.status === 200) update(events === before ? answer.body : { ...answer.body, state: undefined, left: undefined });
    if (!document.hidden && !source) pollTimer = setTimeout(poll, spread(Math.max(4000, answer.wait * 1000)));
  };
  const listen = () => {
    source = new EventSource(salePath + '/events');
    const receive = (e) => { events++; update(JSON.parse(e.data)); };
    source.addEventListener('state', receive);
    source.addEventListener('left', receive);
    source.addEventListener('error', () => {
      if (source?.readyState !== EventSource.CLOSED) return; // the browser reconnects
      stop();
      poll();
      streamTimer = setTimeout(() => { if (!document.hidden) { clearTimeout(pollTimer); listen(); } }, spread(retryStream));
    });
  };
  const stop = () => { source?.close(); source = undefined; clearTimeout(pollTimer); clearTimeout(streamTimer); };
  const start = () => { stop(); if (!document.hidden) { poll(); listen(); } };
  document.addEventListener('visibilitychange', start);
  addEventListener('online', start);
  addEventListener('pagehide', stop);
  addEventListener('pageshow', (e) => { if (e.persisted) start(); });
  start();
}

// follow calls update with an order until its status is final, the token is rejected, or the signal aborts. Without a stream it polls.
async function follow(id, token, signal, update) {
  const done = new AbortController();
  signal.addEventListener('abort', () => done.abort(), { once: true });
  const read = async (wait) => {
    const answer = await call('GET', orderPath(id) + (wait ? '?wait=10s' : ''), { token, timeout: 45000 });
    if (signal.aborted) return answer;
    if ([200, 401, 404].includes(answer.status)) update(answer);
    const { status, pay_by: due } = answer.body;
    if (answer.status === 401 || status === 'paid' || status === 'cancelled' || (status === 'created' && !due)) done.abort();
    return answer;
  };
  while (!done.signal.aborted) {
    const streamed = await stream(orderPath(id) + '/events', token, done.signal, () => read(false));
    if (done.signal.aborted) return;
    const answer = await read(!streamed);
    const final = answer.body.status === 'created';
    await pause(spread(streamed || answer.status !== 200 ? Math.max(2000, answer.wait * 1000) : final ? 15000 : 300), done.signal);
  }
}

// stream calls received after each event until the stream ends. It returns false if there is no stream. EventSource cannot send a token.
async function stream(path, token, signal, received) {
  try {
    const response = await fetch(path, { headers: { Accept: 'text/event-stream', Authorization: 'Bearer ' + token }, signal, cache: 'no-store', credentials: 'omit' });
    if (!response.ok || !response.body) return false;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let line = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const lines = (line + value).split('\n');
      line = lines.pop();
      if (lines.some((l) => l.startsWith('data:'))) await received();
    }
  } catch {
    return false; // cut or aborted
  }
}

