// Rendering: show updates the page from the state.
const pad = (n) => String(n).padStart(2, '0');

// stateNow returns the state of the sale, advanced by the clock, which is ahead of updates from the server.
function stateNow(sale) {
  if (sale.state === 'scheduled' && sale.opens && clock.now() >= sale.opens) return sale.left > 0 ? 'open' : 'sold_out';
  if (sale.closes && clock.now() >= sale.closes && sale.state !== 'paused') return 'closed';
  return sale.state;
}

function show(now) {
  const state = stateNow(now.sale);
  root.dataset.state = state;
  put('state', tr('state.' + state));
  showCountdown(state === 'scheduled' ? now.sale.opens - clock.now() : -1);
  put('left', tr('left', { n: now.sale.left, stock: now.sale.stock }));
  $('bar').max = now.sale.stock;
  $('bar').value = now.sale.left;
  showButton(now, state);
  put('message', now.message || idleMessage(state, now));
  $('message').dataset.tone = now.message ? now.tone : '';
  $('order').hidden = !now.order;
  if (now.order) {
    put('order-id', now.order.id);
    put('order-status', tr('status.' + now.order.status));
  }
  $('signin').hidden = !now.pasting;
  $('who').hidden = !buyer.name;
  put('name', tr('signin.as', { name: buyer.name }));
}

// put sets a text if it has changed, because screen readers repeat every text that is set.
function put(id, words) {
  const el = $(id);
  if (el.textContent !== words) el.textContent = words;
}

function showCountdown(ms) {
  $('countdown').hidden = ms < 0;
  if (ms < 0) return;
  showOpening(now.sale.opens);
  const s = Math.ceil(ms / 1000);
  put('d', String(Math.floor(s / 86400)));
  put('h', pad(Math.floor(s / 3600) % 24));
  put('m', pad(Math.floor(s / 60) % 60));
  put('s', pad(s % 60));
}

// showOpening shows the opening time in the buyer's time zone, and names the zone.
function showOpening(opens) {
  const at = new Date(opens).toISOString();
  if ($('at').dateTime === at) return;
  $('at').dateTime = at;
  put('at', new Date(opens).toLocaleString(locale, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' }));
}

function showButton(now, state) {
  const [words, enabled] = buttonNow(now, state);
  put('buy', words);
  $('buy').disabled = false;
  $('buy').setAttribute('aria-disabled', String(!enabled)); // not `disabled`, which would remove the keyboard focus
}

function buttonNow(now, state) {
  if (now.step === 'sending') return [tr('buy.sending'), false];
  if (now.step === 'waiting') return [tr('buy.wait', { n: Math.max(1, Math.ceil((now.until - performance.now()) / 1000)) }), false];
  if (now.order && now.order.status !== 'cancelled' && now.full) return [tr('buy.done'), false];
  if (state !== 'open') return [tr('buy.' + state), false];
  if (!buyer.token) return [tr('signin'), true];
  return [tr(now.order && now.order.status !== 'cancelled' ? 'buy.again' : 'buy'), true];
}

function idleMessage(state, now) {
  if (now.order || state === 'open') return '';
  return tr('message.' + state);
}

