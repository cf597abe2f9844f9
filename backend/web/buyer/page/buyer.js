// Who buys, and what this browser remembers of the purchase. A token lives as long as its tab. The key of a purchase and its order are kept for the
// buyer and the sale, so that a reload, a second tab and a new sign-in all find the same order.
const buyer = {
  token: '',
  name: '',

  // sign in with a token, or with the one that this tab had. False: it is none, or it has run out.
  use(token) {
    const claims = readClaims(token);
    if (!claims) return false;
    this.token = token;
    this.name = claims.sub;
    keep(sessionStorage, 'sluice:token', token);
    return true;
  },
  forget() {
    this.token = this.name = '';
    keep(sessionStorage, 'sluice:token', null);
  },
  start() {
    const given = /(?:^#|&)token=([^&]+)/.exec(location.hash);
    if (given) history.replaceState(null, '', location.pathname + location.search); // a token must not stay where people copy it from
    return this.use(given ? given[1] : read(sessionStorage, 'sluice:token') || '');
  },

  place() { return 'sluice:' + root.dataset.sale + ':' + this.name; },
  memory() {
    try { return JSON.parse(read(localStorage, this.place())) || {}; } catch { return {}; }
  },
  remember(change) { keep(localStorage, this.place(), JSON.stringify({ ...this.memory(), ...change })); },

  // key is the same for every try of one purchase, in all tabs.
  key() {
    const known = this.memory().key;
    if (known) return known;
    const key = freshKey();
    this.remember({ key });
    return this.memory().key || key;
  },
  next() { this.remember({ key: '', order: '' }); },

  // asking says that this tab began a purchase whose end it has not seen. Another day's tab does not buy by itself.
  asking: {
    get() { return read(sessionStorage, buyer.place() + ':asking') === '1'; },
    set(on) { keep(sessionStorage, buyer.place() + ':asking', on ? '1' : null); },
  },
};

// readClaims looks into a token only to show a name and to tell that it has run out; the shop judges it.
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

// A browser may refuse to store anything; then a purchase lives as long as the page.
const unstored = {};
function read(store, name) {
  let value = null;
  try { value = store.getItem(name); } catch { /* not allowed here */ }
  return value ?? unstored[name] ?? null;
}
function keep(store, name, value) {
  try {
    if (value === null) store.removeItem(name); else store.setItem(name, value);
  } catch {
    unstored[name] = value;
  }
}

