// The page's words and where they go. Nothing of a text is ever taken for HTML.
const root = document.getElementById('sale');
const text = JSON.parse(root.dataset.text);
const language = document.documentElement.lang;
const locale = navigator.language.startsWith(language) ? navigator.language : language; // how its readers write a date
const $ = (id) => document.getElementById(id);

function say(key, values = {}) {
  const written = (value) => (typeof value === 'number' ? value.toLocaleString(language) : String(value));
  return (text[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? written(values[name]) : whole));
}

