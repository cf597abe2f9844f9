// h creates an element. All elements are created here, and strings become text nodes, so that user-supplied text cannot become markup.
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'class') el.className = value;
    else if (name in el && typeof value !== 'string') el[name] = value;
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...present(children));
  return el;
}

// present removes children with a false condition.
const present = (children) => children.flat().filter((c) => c !== null && c !== undefined && c !== false);

// fill replaces the children of an element. The keyboard focus stays on the same control, or moves to the nearest one.
function fill(el, ...children) {
  const at = document.activeElement, inside = el !== at && el.contains(at);
  el.replaceChildren(...present(children));
  if (inside) (sameControl(el, at) || el.querySelector('a[href], button:enabled') || el.closest('[tabindex]') || view).focus();
}

// put sets a text if it has changed, because screen readers repeat every text that is set.
const put = (el, text) => { if (el.textContent !== text) el.textContent = text; };

// sameControl finds the new version of a control that was replaced.
const sameControl = (el, old) => [...el.querySelectorAll('a[href], button, input, [tabindex]')].find((c) => nameOf(c) === nameOf(old) && !c.disabled);

const nameOf = (el) => el.getAttribute('aria-label') || el.getAttribute('href') || el.textContent;

const SVG = 'http://www.w3.org/2000/svg';
function svg(tag, attributes, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

// userText shows user-supplied text: shortened, and isolated in its direction.
const userText = (text, cls) => h('bdi', { class: 'user-text ' + (cls || ''), dir: 'auto', title: text.length > 40 ? text.slice(0, 300) : undefined }, text.length > 300 ? text.slice(0, 300) + '…' : text);

// withoutBidi removes the characters that change the direction of text, for the window's title.
const withoutBidi = (text) => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '');

const button = (label, onclick, cls, name) => h('button', { type: 'button', class: cls || '', onclick, 'aria-label': name }, label);

const problemLine = (text) => h('p', { class: 'problem', role: 'alert' }, text);

const loading = 'Loading…';

// reloader returns a function that shows the body of the response to read, or its problem in the element at. One read is in progress at a time: a slow
// server gets no further requests, and no older response replaces a newer one. Calls during a read share the next one. The promise resolves to
// true if the page shows the response.
function reloader(read, at, show) {
  let running = Promise.resolve(), next = null;
  if (!at.hasChildNodes()) fill(at, h('span', { class: 'soft' }, loading));
  const load = async () => {
    next = null;
    const got = await read();
    if (got.ok) show(got.body);
    else if (at.textContent !== got.problem) fill(at, problemLine(got.problem)); // a repeated one is not announced again
    return got.ok;
  };
  return () => next ??= running = running.then(load, load);
}

// fact is a name with its value in a list of facts.
const fact = (name, ...value) => h('div', null, h('dt', null, name), h('dd', null, value));

// tableOf returns a table that scrolls horizontally if it is too wide. A column of head is its name, or { name, cls }.
const tableOf = (label, head, body) => h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label }, h('table', { 'aria-label': label },
  h('thead', null, h('tr', null, head.map((c) => h('th', { scope: 'col', class: c.cls }, c.name === undefined ? c : c.name)))), body));
const number = (name) => ({ name, cls: 'n' }); // a column with numbers

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
