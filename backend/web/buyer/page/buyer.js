// The buyer, and what this browser stores about the purchase. A token is stored for its tab. The idempotency key and the order are stored per
// buyer and sale, so that a reload, a second tab and a new sign-in find the same order.
const buyer = {
  token: '',
  name: '',

  // signIn returns false if the token is invalid or has expired.
  signIn(token) {
    const claims = readClaims(token);
    if (!claims) return false;
    this.token = token;
    this.name = claims.sub;
    keep(sessionStorage, 'sluice:token', token);
    return true;
  },
  signOut() {
    this.token = this.name = '';
    keep(sessionStorage, 'sluice:token', null);
  },
  start() {
    const given = /(?:^#|&)token=([^&]+)/.exec(location.hash);
    if (given) history.replaceState(null, '', location.pathname + location.search); // a token must not stay in an address that people share
    return this.signIn(given ? given[1] : read(sessionStorage, 'sluice:token') || '');
  },

  storageKey() { return 'sluice:' + root.dataset.sale + ':' + this.name; },
  stored() {
    try { return JSON.parse(read(localStorage, this.storageKey())) || {}; } catch { return {}; }
  },
  store(change) { keep(localStorage, this.storageKey(), JSON.stringify({ ...this.stored(), ...change })); },

  // key returns the idempotency key, which is the same for all attempts of one purchase, in all tabs.
  key() {
    const known = this.stored().key;
    if (known) return known;
    const key = freshKey();
    this.store({ key });
    return this.stored().key || key;
  },
  nextPurchase() { this.store({ key: '', order: '' }); },

  // pending marks a purchase of this tab without a result. It is per tab, so that a tab opened later does not buy automatically.
  pending: {
    get() { return read(sessionStorage, buyer.storageKey() + ':pending') === '1'; },
    set(on) { keep(sessionStorage, buyer.storageKey() + ':pending', on ? '1' : null); },
  },
};

// readClaims reads the name and the expiry of a token. The server verifies the token.
function readClaims(token) {
  try {
    const part = token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/');
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))));
    if (typeof claims.sub !== 'string' || !claims.sub) return null;
    return claims.exp * 1000 > clock.now() ? claims : null;
  } catch {
    return null;
  }
}

function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

// If the browser does not allow storage, values are kept until the page closes.
const fallback = {};
function read(store, name) {
  let value = null;
  try { value = store.getItem(name); } catch { /* storage is not allowed */ }
  return value ?? fallback[name] ?? null;
}
function keep(store, name, value) {
  try {
    if (value === null) store.removeItem(name); else store.setItem(name, value);
  } catch {
    fallback[name] = value;
  }
}

