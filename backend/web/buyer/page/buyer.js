// The buyer, and what this browser stores about the purchase. A token is stored for its tab. The idempotency key of the last purchase, and its
// order once it has one, are stored per buyer and sale, so that a reload, a second tab and a new sign-in continue the same purchase.
const buyer = {
  token: '',
  name: '',
  expires: 0, // milliseconds since 1970

  // signIn returns '', or the key of a text that explains why the token is not used.
  signIn(token) {
    const claims = readClaims(token);
    if (!claims) return 'signin.bad';
    if (claims.exp * 1000 <= clock.now()) return 'signin.ended';
    this.token = token;
    this.name = claims.sub;
    this.expires = claims.exp * 1000;
    keep('sessionStorage', 'sluice:token', token);
    return '';
  },
  signOut() {
    this.token = this.name = '';
    keep('sessionStorage', 'sluice:token', null);
  },
  given() { return /(?:^#|&)token=([^&]+)/.exec(location.hash); },
  // start signs in with the token of the address or of this tab. It returns what signIn returns, and '' without a token.
  start() {
    const given = this.given();
    if (given) history.replaceState(null, '', location.pathname + location.search); // a token must not stay in an address that buyers may share
    const token = given ? given[1] : read('sessionStorage', 'sluice:token');
    return token ? this.signIn(token) : '';
  },

  storageKey() { return 'sluice:' + root.dataset.sale + ':' + this.name; },
  stored() {
    try { return JSON.parse(read('localStorage', this.storageKey())) || {}; } catch { return {}; }
  },
  store(change) { keep('localStorage', this.storageKey(), JSON.stringify({ ...this.stored(), ...change })); },

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
    get() { return read('sessionStorage', buyer.storageKey() + ':pending') === '1'; },
    set(on) { keep('sessionStorage', buyer.storageKey() + ':pending', on ? '1' : null); },
  },
};

// readClaims returns the claims of a token, or null if it names no buyer or has no expiry. The server verifies the token.
function readClaims(token) {
  try {
    const part = token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/');
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))));
    return typeof claims.sub === 'string' && claims.sub && claims.exp > 0 ? claims : null;
  } catch {
    return null;
  }
}

function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

