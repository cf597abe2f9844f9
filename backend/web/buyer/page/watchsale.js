// Updates of the sale over server-sent events. A stream may be rejected, cut or silent, so the page also polls. A hidden page does neither.

// watchSale calls update with the state and the units left of the sale while the page is visible. It returns a function that requests them once.
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
    if (answer.status === 404) update({ state: 'closed' }); // archived meanwhile
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
  return poll;
}

