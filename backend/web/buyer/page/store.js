// If the browser does not allow storage, or its storage is full, values are kept until the page closes. Some browsers throw an error when a script
// names a store that is not allowed.
const fallback = {};
function read(store, name) {
  if (name in fallback) return fallback[name];
  try { return window[store].getItem(name); } catch { return null; }
}
function keep(store, name, value) {
  try {
    if (value === null) window[store].removeItem(name); else window[store].setItem(name, value);
    delete fallback[name];
  } catch {
    fallback[name] = value;
  }
}

