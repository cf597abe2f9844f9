// Elements are made here and nowhere else, and text only ever becomes text: what a shop calls its sale cannot become markup.
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'class') el.className = value;
    else if (name in el && typeof value !== 'string') el[name] = value;
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...there(children));
  return el;
}

// there leaves out what a condition has left out.
const there = (children) => children.flat().filter((c) => c !== null && c !== undefined && c !== false);

// fill shows something else in an element. Whoever was in it with the keyboard stays where they were, or as near as there is.
function fill(el, ...children) {
  const at = document.activeElement, inside = el !== at && el.contains(at);
  el.replaceChildren(...there(children));
  if (!inside) return;
  const name = nameOf(at);
  const same = [...el.querySelectorAll('a[href], button, input, [tabindex]')].find((c) => nameOf(c) === name && !c.disabled);
  (same || el.querySelector('a[href], button:enabled') || el.closest('[tabindex]') || view).focus();
}

const nameOf = (el) => el.getAttribute('aria-label') || el.getAttribute('href') || el.textContent;

const SVG = 'http://www.w3.org/2000/svg';
function svg(tag, attributes, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

// own is a text that somebody else wrote: kept apart in its direction, and short where it stands among others.
const own = (text, cls) => h('bdi', { class: 'own ' + (cls || ''), dir: 'auto', title: text.length > 40 ? text.slice(0, 300) : undefined }, text.length > 300 ? text.slice(0, 300) + '…' : text);

const button = (label, onclick, cls, name) => h('button', { type: 'button', class: cls || '', onclick, 'aria-label': name }, label);

const problemLine = (text) => h('p', { class: 'problem', role: 'alert' }, text);

const page = (...children) => fill(view, ...children);

let toastTimer;
function toast(text) {
  const at = document.getElementById('toast');
  at.textContent = text;
  at.classList.add('on');
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => at.classList.remove('on'), 6000);
}

const view = document.getElementById('view');
