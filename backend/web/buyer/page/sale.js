// The purchase: one button, and every answer of the shop leads somewhere. A purchase is one key, whatever is clicked, reloaded or cut, so that asking
// again is always safe.
const data = root.dataset;
const now = {
  sale: { state: data.state, left: Number(data.left), stock: Number(data.stock), opens: Number(data.opens), closes: Number(data.closes) },
  step: 'idle', // or 'sending', 'waiting'
  until: 0, // the end of a wait, on performance's clock
  tries: 0,
  order: null,
  full: Number(data.perBuyer) === 1, // with an order, this buyer has all that one may have
  message: '', tone: '',
  pasting: false,
};
const perBuyer = Number(data.perBuyer);
const mostTries = 30;
let following = new AbortController();
let hurry = () => {};

function tell(message, tone = '') {
  now.message = message;
  now.tone = tone;
  show(now);
}

// buy asks until there is an answer that waiting cannot change.
async function buy() {
  if (now.step !== 'idle') return;
  now.step = 'sending';
  buyer.asking.set(true);
  const key = buyer.key();
  tell(say('say.sending'));
  for (now.tries = 1; ; now.tries++) {
    const answer = await call('POST', salePath + '/orders', { token: buyer.token, key });
    const wait = patience(answer);
    if (!wait || now.tries >= mostTries) {
      now.step = 'idle';
      if (!wait) buyer.asking.set(answer.status === 401); // with a new token it goes on
      return wait ? tell(say('say.gaveup'), 'bad') : settle(answer);
    }
    await waitFor(wait);
    now.step = 'sending';
    tell(say('say.sending'));
  }
}

// patience is for how many seconds to wait before the same is asked again; 0: not at all, this answer stands.
function patience(answer) {
  switch (answer.status) {
    case 0: return navigator.onLine === false ? { seconds: 30, why: 'say.offline' } : { seconds: Math.min(20, 2 ** now.tries), why: 'say.busy' };
    case 429: return { seconds: Math.max(1, answer.wait), why: 'say.limit' };
    case 408: case 500: case 502: case 503: case 504: return { seconds: Math.max(2, answer.wait), why: 'say.busy' };
    default: return null;
  }
}

// waitFor counts down, and ends early when the connection comes back.
async function waitFor({ seconds, why }) {
  now.step = 'waiting';
  now.until = performance.now() + seconds * 1000;
  tell(say(why, { n: seconds }));
  const early = new AbortController();
  hurry = () => { if (why === 'say.offline' || why === 'say.busy') early.abort(); };
  await pause(seconds * 1000, early.signal);
  hurry = () => {};
}

const settled = {
  'already-bought'({ order_id: id }) {
    now.full = true;
    tell(perBuyer > 1 ? say('say.already.many', { n: perBuyer }) : say('say.already'));
    if (id) track(id);
  },
  'sold-out'() { now.sale.state = 'sold_out'; now.sale.left = 0; tell(say('say.sold_out')); },
  'sale-not-open'(body) {
    const opens = Date.parse(body.opens_at);
    if (opens) now.sale.opens = opens;
    now.sale.state = 'scheduled';
    tell('');
  },
  'sale-closed'() { now.sale.state = 'closed'; tell(''); },
  'sale-paused'() { now.sale.state = 'paused'; tell(''); },
  unauthorized() { buyer.forget(); tell(say('signin.ended'), 'bad'); },
  'idempotency-key-reused'() { buyer.next(); tell(say('say.gaveup'), 'bad'); },
};

function settle(answer) {
  if (answer.status === 202) {
    now.full = perBuyer === 1;
    tell(say('say.queued'), 'good');
    return track(answer.body.order_id);
  }
  (settled[answer.body.code] || ((body) => tell(say('say.bad', { detail: body.detail || answer.status }), 'bad')))(answer.body);
}

// track shows an order and follows it.
function track(id, status = 'queued') {
  following.abort();
  following = new AbortController();
  buyer.remember({ order: id });
  now.order = { id, status };
  show(now);
  follow(id, buyer.token, following.signal, (answer) => {
    if (answer.status === 401) return settled.unauthorized();
    if (answer.status === 404) return forgetOrder(id);
    now.order = { id, status: answer.body.status };
    sayOrder(answer.body);
  });
}

function sayOrder(order) {
  const by = order.pay_by ? ' ' + say('say.payby', { time: new Date(order.pay_by).toLocaleTimeString(locale) }) : '';
  tell(say('say.' + order.status) + by, order.status === 'cancelled' ? 'bad' : 'good');
  if (order.status === 'cancelled') buyer.remember({ key: '' }); // the next purchase is another one
}

// forgetOrder is for what this browser remembers and the shop does not know: another shop's data, or a demo that was begun anew.
function forgetOrder(id) {
  if (now.order?.id !== id) return;
  now.order = null;
  buyer.next();
  tell('');
}

function pressed() {
  if ($('buy').getAttribute('aria-disabled') === 'true') return;
  if (!buyer.token) return signIn();
  if (now.order) {
    buyer.next();
    now.order = null;
  }
  buy();
}

function signIn() {
  if (data.signIn) {
    location.assign(data.signIn.replace('{url}', encodeURIComponent(location.origin + location.pathname)));
    return;
  }
  now.pasting = true;
  show(now);
  $('token').focus();
}

// greet takes up what this buyer began before.
function greet() {
  now.pasting = false;
  const { order } = buyer.memory();
  if (order) return track(order);
  if (buyer.asking.get()) {
    tell(say('say.resumed'));
    return buy();
  }
  tell('');
}

$('buy').addEventListener('click', pressed);
$('signin').addEventListener('submit', (e) => {
  e.preventDefault();
  const given = $('token').value.trim();
  $('token').value = '';
  if (!buyer.use(given)) return tell(say('signin.bad'), 'bad');
  greet();
  $('buy').focus();
});
$('out').addEventListener('click', () => {
  following.abort();
  buyer.forget();
  now.order = null;
  tell('');
});
addEventListener('online', () => hurry());
addEventListener('storage', (e) => { // another tab of this buyer
  if (e.key !== buyer.place() || now.step !== 'idle') return;
  const { order } = buyer.memory();
  if (order && order !== now.order?.id) track(order);
});

setInterval(() => show(now), 250);
watchSale((said) => {
  if (said.state) now.sale.state = said.state;
  if (typeof said.left === 'number') now.sale.left = said.left;
  if (typeof said.stock === 'number') now.sale.stock = said.stock;
  if (said.opens_at) now.sale.opens = Date.parse(said.opens_at);
  if (said.closes_at !== undefined) now.sale.closes = said.closes_at ? Date.parse(said.closes_at) : 0;
  if (now.sale.state === 'open' && now.step === 'idle' && !now.order) now.message = now.tone === 'bad' ? now.message : '';
  show(now);
});
if (buyer.start()) greet(); else show(now);
