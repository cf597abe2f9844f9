// Updates of the buyer's orders. EventSource cannot send a token, so the event stream is read with fetch.

// watchOrders calls update with each answer to a request for the buyer's orders, until no order can change any more, the token is rejected, or
// the signal aborts. An event causes a request. Orders that are not rows cause no events, so the orders are also polled.
async function watchOrders(token, signal, update) {
  const done = new AbortController();
  let early = new AbortController();
  const request = () => early.abort();
  signal.addEventListener('abort', () => { done.abort(); request(); }, { once: true });
  let listening = false;
  while (!done.signal.aborted) {
    early = new AbortController(); // an event during the request causes another one
    const answer = await call('GET', ordersPath, { token });
    if (signal.aborted) return;
    if ([200, 401].includes(answer.status)) update(answer);
    if (answer.status === 401 || (answer.status === 200 && !answer.body.orders.some(mayChange))) return done.abort();
    if (!listening) listenOrders(token, done.signal, request);
    listening = true;
    await pause(untilPoll(answer), early.signal);
  }
}

const mayChange = (order) => order.status === 'queued' || order.status === 'dead' || Boolean(order.pay_by);

// untilPoll returns the milliseconds until the next request for the orders: few if one of them becomes a row or expires soon.
function untilPoll(answer) {
  if (answer.status !== 200) return spread(Math.max(2000, answer.wait * 1000));
  const { orders } = answer.body;
  if (orders.some((o) => o.status === 'queued')) return spread(2000);
  const expiry = Math.min(...orders.filter((o) => o.pay_by).map((o) => Date.parse(o.pay_by))) - clock.now() + 1500;
  return spread(Math.min(15000, Math.max(2000, expiry)));
}

// listenOrders calls changed after each event of the buyer's orders, until the signal aborts.
async function listenOrders(token, signal, changed) {
  while (!signal.aborted) {
    const streamed = await stream('/v1/me/events', token, signal, changed);
    await pause(spread(streamed ? 2000 : 60000), signal);
  }
}

// stream calls received after each event until the stream ends. It returns false if there is no stream.
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
      if (lines.some((l) => l.startsWith('data:'))) received();
    }
  } catch {
    return false; // cut or aborted
  }
}

