// Rendering: show updates the page from the state.
const pad = (n) => String(n).padStart(2, '0');

// stateNow returns the state of the sale, advanced by the clock, which is ahead of updates from the server.
function stateNow(sale) {
  if (sale.state === 'scheduled' && sale.opens && clock.now() >= sale.opens) return sale.left > 0 ? 'open' : 'sold_out';
  if (sale.closes && clock.now() >= sale.closes && sale.state !== 'paused') return 'closed';
  return sale.state;
}

function show(now) {
  const focused = document.activeElement;
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
  put('limit', held(now) ? tr('limit.held', { n: held(now), max: now.perBuyer }) : tr('limit', { n: now.perBuyer }));
  showOrderRows(now.orders);
  $('signin').hidden = !now.pasting;
  $('who').hidden = !buyer.name;
  put('name', tr('signin.as', { name: buyer.name }));
  if (focused && (!focused.isConnected || focused.closest('[hidden]'))) $('buy').focus(); // instead of a control that has disappeared
}

// put sets a text if it has changed, because screen readers repeat every text that is set. at is an element or its id.
function put(at, words) {
  const el = typeof at === 'string' ? $(at) : at;
  if (el.textContent !== words) el.textContent = words;
}

// held returns the number of orders that count for the limit per buyer.
const held = (now) => now.orders.filter((o) => o.status !== 'cancelled').length;

// showOrderRows updates the rows of the orders in place, because a row may have the keyboard focus.
function showOrderRows(orders) {
  $('order').hidden = !orders.length;
  put('order-title', tr(orders.length > 1 ? 'orders' : 'order'));
  const rows = new Map(Array.from($('orders').children, (row) => [row.dataset.order, row]));
  orders.forEach((order, i) => {
    let row = rows.get(order.order_id);
    rows.delete(order.order_id);
    if (!row) {
      row = $('row').content.firstElementChild.cloneNode(true);
      row.dataset.order = order.order_id;
      put(row.querySelector('.number'), order.order_id);
    }
    if ($('orders').children[i] !== row) $('orders').insertBefore(row, $('orders').children[i] || null);
    row.dataset.status = order.status;
    put(row.querySelector('.badge'), tr('status.' + (order.expired ? 'expired' : order.status)));
    showPayment(row, order);
  });
  rows.forEach((row) => row.remove());
}

// showPayment shows the time left to pay an order, and the way to the shop's checkout.
function showPayment(row, order) {
  const due = Date.parse(order.pay_by); // NaN without one
  const left = due - clock.now();
  const link = row.querySelector('a');
  link.hidden = !(left > 0 && root.dataset.checkout);
  row.querySelector('.due').hidden = !due;
  if (!link.hidden) link.href = root.dataset.checkout.replaceAll('{order}', encodeURIComponent(order.order_id)).replaceAll('{sale}', encodeURIComponent(root.dataset.sale));
  if (due) put(row.querySelector('.due'), left > 0 ? tr('pay.left', { time: deadline(due), left: duration(left) }) : tr('pay.over'));
}

// deadline formats a time in the buyer's time zone, with its day if it is more than half a day away. It caches the texts, because a browser
// takes milliseconds for each.
const deadlines = new Map();
function deadline(due) {
  if (!deadlines.has(due)) {
    const style = due - clock.now() > 12 * 3600e3 ? { dateStyle: 'medium', timeStyle: 'short' } : { timeStyle: 'short' };
    deadlines.set(due, new Date(due).toLocaleString(locale, style));
  }
  return deadlines.get(due);
}

// duration formats milliseconds as 14:05, or as 3:14:05 with hours.
function duration(ms) {
  const s = Math.ceil(ms / 1000);
  const minutes = Math.floor(s / 60);
  return (minutes < 60 ? minutes : Math.floor(minutes / 60) + ':' + pad(minutes % 60)) + ':' + pad(s % 60);
}

function showCountdown(ms) {
  $('countdown').hidden = ms < 0;
  if (ms < 0) return;
  showOpening(now.sale.opens);
  const s = Math.ceil(ms / 1000);
  const days = Math.floor(s / 86400);
  put('d', String(days));
  put('days', tr(days === 1 ? 'day' : 'days'));
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
  if (held(now) >= now.perBuyer) return [tr('buy.done'), false];
  if (now.ended) return [tr('signin.again'), true];
  if (state !== 'open') return [tr('buy.' + state), false];
  if (!buyer.token) return [tr('signin'), true];
  return [tr(held(now) ? 'buy.again' : 'buy'), true];
}

function idleMessage(state, now) {
  if (state === 'open' || held(now) >= now.perBuyer) return '';
  return tr('message.' + state);
}

