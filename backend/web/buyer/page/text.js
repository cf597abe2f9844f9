// The page's texts and elements. Texts are never parsed as HTML.
const root = document.getElementById('sale');
const text = JSON.parse(root.dataset.text);
const language = document.documentElement.lang;
const locale = navigator.language.startsWith(language) ? navigator.language : language; // for dates
const numbers = new Intl.NumberFormat(language);
const $ = (id) => document.getElementById(id);

// tr returns the text for a key with its placeholders replaced.
function tr(key, values = {}) {
  const format = (value) => (typeof value === 'number' ? numbers.format(value) : String(value));
  return (text[key] || key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? format(values[name]) : whole));
}

