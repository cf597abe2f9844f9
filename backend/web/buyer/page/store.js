// If the browser does not allow storage, values are kept until the page closes. Some browsers then throw an error when a script names a store.
const fallback = {};
function read(store, name) {
  let value = null;
  try { value = window[store].getItem(name); } catch { /* storage is not allowed */ }
  return value ?? fallback[name] ?? null;
}
function keep(store, name, value) {
  try {
    if (value === null) window[store].removeItem(name); else window[store].setItem(name, value);
  } catch {
    fallback[name] = value;
  }
}

