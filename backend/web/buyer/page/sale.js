// The purchase. All attempts of a purchase send the same idempotency key, also after a reload, so that repeating a request is safe.
const data = root.dataset;
const now = {
  sale: { state: data.state, left: Number(data.left), stock: Number(data.stock), opens: Number(data.opens), closes: Number(data.closes) },
  step: 'idle', // or 'sending', 'waiting'
  until: 0, // the end of a wait, on performance's clock
  tries: 0,
  orders: [], // of this buyer, the newest first
  perBuyer: Number(data.perBuyer),
  message: '', tone: '',
  ended: false, // the token has expired or was rejected
  pasting: false,
};
const maxTries = 30;
let following = new AbortController();
let buying = new AbortController(); // of the purchase in progress, which a sign-out ends
let skipWait = () => {};

function setMessage(message, tone = '') {
  now.message = message;
  now.tone = tone;
  show(now);
}

// buy repeats the request until the response is final.
async function buy() {
  if (now.step !== 'idle') return;
  now.step = 'sending';
  buyer.pending.set(true);
  const key = buyer.key();
  const { token } = buyer;
  buying = new AbortController();
  const { signal } = buying;
  setMessage(tr('message.sending'));
  for (now.tries = 1; ; now.tries++) {
    const answer = await call('POST', salePath + '/orders', { token, key });
    if (signal.aborted) return;
    const wait = retryAfter(answer);
    if (!wait || now.tries >= maxTries) {
      now.step = 'idle';
      if (!wait) buyer.pending.set(answer.status === 401); // the purchase continues with a new token
      return wait ? setMessage(tr('message.gaveup'), 'bad') : settle(answer);
    }
    await waitFor(wait, signal);
    if (signal.aborted) return;
    now.step = 'sending';
    setMessage(tr('message.sending'));
  }
}

// retryAfter returns how long to wait before the next attempt, and the message to show. It returns null if the response is final.
function retryAfter(answer) {
  switch (answer.status) {
    case 0: return navigator.onLine === false ? { seconds: 30, why: 'message.offline' } : { seconds: Math.min(20, 2 ** now.tries), why: 'message.busy' };
    case 429: return { seconds: Math.max(1, answer.wait), why: 'message.limit' };
    case 408: case 500: case 502: case 503: case 504: return { seconds: Math.max(2, answer.wait), why: 'message.busy' };
    default: return null;
  }
}

// waitFor shows a countdown. It ends early when the browser is online again, and when the signal aborts.
async function waitFor({ seconds, why }, signal) {
  now.step = 'waiting';
  now.until = performance.now() + seconds * 1000;
  setMessage(tr(why, { n: seconds }));
  const early = new AbortController();
  signal.addEventListener('abort', () => early.abort(), { once: true });
  skipWait = () => { if (why === 'message.offline' || why === 'message.busy') early.abort(); };
  await pause(seconds * 1000, early.signal);
  skipWait = () => {};
}

// refused shows the state of the sale that a refusal implies. The refusal may be outdated, because an edge repeats refusals for a second. If the
// last reported state is still another one after three seconds, the state is requested.
function refused(state) {
  now.sale.state = state;
  setMessage('');
  setTimeout(() => { if (now.sale.state !== reported) requestSale(); }, spread(3000));
}

const refusals = {
  'already-bought'({ order_id: id }) {
    setMessage(now.perBuyer > 1 ? tr('message.already.many', { n: now.perBuyer }) : tr('message.already'));
    if (id) track(id);
  },
  'sold-out'() { now.sale.left = 0; refused('sold_out'); },
  'sale-not-open'(body) {
    const opens = Date.parse(body.opens_at);
    if (opens) now.sale.opens = opens;
    refused('scheduled');
  },
  'sale-closed'() { refused('closed'); },
  'sale-paused'() { refused('paused'); },
  unauthorized() { signedOut('signin.ended'); },
  'idempotency-key-reused'() { buyer.nextPurchase(); setMessage(tr('message.gaveup'), 'bad'); },
};

function settle(answer) {
  if (answer.status === 202) {
    setMessage(tr('message.queued'), 'good');
    const known = now.orders.find((o) => o.order_id === answer.body.order_id); // by a purchase whose response was lost
    if (known) known.explained = '';
    return track(answer.body.order_id);
  }
  (refusals[answer.body.code] || ((body) => setMessage(tr('message.bad', { detail: body.detail || answer.status }), 'bad')))(answer.body);
}

// track shows the order of a purchase, and the current state of all orders as soon as the shop has returned them.
function track(id) {
  buyer.store({ order: id });
  if (!now.orders.some((o) => o.order_id === id)) now.orders.unshift({ order_id: id, status: 'queued' });
  show(now);
  followOrders();
}

// followOrders keeps the orders of a signed-in buyer up to date while the page is visible.
function followOrders() {
  following.abort();
  if (document.hidden || !buyer.token) return;
  following = new AbortController();
  watchOrders(buyer.token, following.signal, (answer) => {
    if (answer.status === 401) return refusals.unauthorized();
    showOrders(answer.body.orders.reverse());
  });
}

// showOrders explains the newest order if it has changed, except during a purchase.
function showOrders(orders) {
  const [before, newest] = [now.orders[0], orders[0]];
  now.orders = orders;
  if (newest && now.step !== 'idle') newest.explained = before?.explained;
  if (!newest || now.step !== 'idle') return show(now);
  newest.explained = newest.order_id + newest.status;
  if (before?.explained === newest.explained) return show(now);
  setMessage(tr(newest.expired ? 'message.expired' : newest.pay_by ? 'message.unpaid' : 'message.' + newest.status), newest.status === 'cancelled' ? 'bad' : 'good');
}

function pressed() {
  if ($('buy').getAttribute('aria-disabled') === 'true') return;
  if (!buyer.token) return startSignIn();
  const { order } = buyer.stored();
  if (now.orders.some((o) => o.order_id === order)) buyer.nextPurchase(); // an order that is already shown belongs to an earlier purchase
  buy();
}

// signedOut removes the token and explains why.
function signedOut(why) {
  following.abort();
  buying.abort();
  buyer.signOut();
  now.step = 'idle';
  now.orders = [];
  now.ended = why !== '';
  setMessage(why && tr(why), 'bad');
}

function startSignIn() {
  if (data.signIn) {
    open(data.signIn.replaceAll('{url}', encodeURIComponent(location.origin + location.pathname + location.search)), '_top'); // not in the frame of an embedding page
    return;
  }
  now.pasting = true;
  show(now);
  $('token').focus();
}

// resume continues the buyer's earlier purchase.
function resume() {
  now.pasting = now.ended = false;
  followOrders();
  if (!buyer.pending.get()) return setMessage('');
  setMessage(tr('message.resumed'));
  buy();
}

$('buy').addEventListener('click', pressed);
$('signin').addEventListener('submit', (e) => {
  e.preventDefault();
  const given = $('token').value.trim();
  $('token').value = '';
  const why = buyer.signIn(given);
  if (why) return setMessage(tr(why), 'bad');
  resume();
});
$('out').addEventListener('click', () => {
  buyer.pending.set(false); // this ends the purchase, unlike an expired token
  signedOut('');
});
addEventListener('online', () => skipWait());
document.addEventListener('visibilitychange', followOrders);
addEventListener('pageshow', (e) => { if (e.persisted) followOrders(); }); // after Back, for example from the checkout
addEventListener('storage', (e) => { // from another tab of this buyer
  if (e.key !== buyer.storageKey() || now.step !== 'idle') return;
  const { order } = buyer.stored();
  if (order && !now.orders.some((o) => o.order_id === order)) track(order);
});

setInterval(() => {
  if (buyer.token && now.step === 'idle' && clock.now() >= buyer.expires) return signedOut('signin.ended');
  show(now);
}, 250);
let reported = now.sale.state; // by the server, not by a refusal
const requestSale = watchSale((update) => {
  const before = now.sale.state;
  if (update.state) now.sale.state = reported = update.state;
  if (typeof update.left === 'number') now.sale.left = update.left;
  if (typeof update.stock === 'number') now.sale.stock = update.stock;
  if (update.opens_at) now.sale.opens = Date.parse(update.opens_at);
  if (update.closes_at !== undefined) now.sale.closes = update.closes_at ? Date.parse(update.closes_at) : 0;
  const outdated = now.tone === 'bad' ? now.sale.state !== before : now.sale.state === 'open';
  if (outdated && now.step === 'idle' && !now.orders.length && !now.ended) now.message = '';
  show(now);
});
// begin signs in with the token of the address or of this tab.
function begin() {
  const why = buyer.start();
  if (buyer.token) resume(); else signedOut(why);
}
addEventListener('hashchange', () => { // a token for a page that is open already, for example in a frame
  if (!buyer.given()) return;
  signedOut('');
  begin();
});
begin();
