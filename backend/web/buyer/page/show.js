// What the page shows: one function from everything that is known to what is seen.
const pad = (n) => String(n).padStart(2, '0');

// the state that a buyer sees now: the sale's own, moved on by the clock, which is ahead of whoever tells of it.
function stateNow(sale) {
  if (sale.state === 'scheduled' && sale.opens && clock.now() >= sale.opens) return sale.left > 0 ? 'open' : 'sold_out';
  if (sale.closes && clock.now() >= sale.closes && sale.state !== 'paused') return 'closed';
  return sale.state;
}

function show(now) {
  const state = stateNow(now.sale);
  root.dataset.state = state;
  put('state', say('state.' + state));
  showCountdown(state === 'scheduled' ? now.sale.opens - clock.now() : -1);
  put('left', say('left', { n: now.sale.left, stock: now.sale.stock }));
  $('bar').max = now.sale.stock;
  $('bar').value = now.sale.left;
  showButton(now, state);
  put('say', now.message || idleMessage(state, now));
  $('say').dataset.tone = now.message ? now.tone : '';
  $('order').hidden = !now.order;
  if (now.order) {
    put('order-id', now.order.id);
    put('order-status', say('status.' + now.order.status));
  }
  $('signin').hidden = !now.pasting;
  $('who').hidden = !buyer.name;
  put('name', say('signin.as', { name: buyer.name }));
}

// put changes a text only if it is another one: screen readers say again what is written again.
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

// showOpening says when it opens by the reader's own zone, and names that: the shop may be in another.
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
  $('buy').setAttribute('aria-disabled', String(!enabled)); // not `disabled`: that would take the keyboard's focus away
}

function buttonNow(now, state) {
  if (now.step === 'sending') return [say('buy.sending'), false];
  if (now.step === 'waiting') return [say('buy.wait', { n: Math.max(1, Math.ceil((now.until - performance.now()) / 1000)) }), false];
  if (now.order && now.order.status !== 'cancelled' && now.full) return [say('buy.done'), false];
  if (state !== 'open') return [say('buy.' + state), false];
  if (!buyer.token) return [say('signin'), true];
  return [say(now.order && now.order.status !== 'cancelled' ? 'buy.again' : 'buy'), true];
}

function idleMessage(state, now) {
  if (now.order || state === 'open') return '';
  return say('say.' + state);
}

