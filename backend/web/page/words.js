// The page's words and where they go. Nothing of a text is ever taken for HTML.
const root = document.getElementById('sale');
const text = JSON.parse(root.dataset.text);
const $ = (id) => document.getElementById(id);

function say(key, values = {}) {
  return (text[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

