// spoken heads a column for those who hear the page; those who see it need no word there.
const spoken = (text) => ({ name: h('span', { class: 'unseen' }, text) });

// list shows one page of something at a time, however much there is. load(cursor) answers as api does, with what pick(body) makes { rows, next } of.
function list({ head, label, load, pick, row, empty, actions }) {
  const body = h('tbody');
  const note = h('p', { class: 'soft note', role: 'status' });
  const first = button('First', () => show([''])), back = button('Previous', () => show(trail.slice(0, -1))), more = button('Next', () => show([...trail, next]));
  const table = tableOf(label, head, body);
  const el = h('div', { class: 'list' }, table, note, h('div', { class: 'row pages' }, first, back, more, actions));
  let trail = [''], next = '', turn = 0, rows = [];

  async function show(to) {
    const mine = ++turn;
    el.classList.add('busy');
    const got = await load(to[to.length - 1]);
    if (mine !== turn) return; // asked for something else meanwhile
    el.classList.remove('busy');
    if (!got.ok) {
      note.textContent = got.problem;
      note.classList.add('problem');
      return;
    }
    note.classList.remove('problem');
    const found = pick(got.body);
    if (!found.rows.length && !found.next && to.length > 1) { // all of this page is gone
      show(to.slice(0, -1));
      return;
    }
    trail = to;
    next = found.next ? String(found.next) : '';
    rows = found.rows;
    fill(body, rows.map(row));
    note.textContent = rows.length ? '' : next ? 'Nothing on this page; there is more to look through.' : empty;
    first.disabled = back.disabled = trail.length < 2;
    more.disabled = !next;
    el.dispatchEvent(new CustomEvent('shown', { detail: rows }));
  }
  return { el, table, again: () => show(trail), restart: () => show(['']), hasNext: () => next !== '', forward: () => show([...trail, next]), rows: () => rows, say: (text) => { note.textContent = text; } };
}

// search is a form whose fields are also in the address, so that what is looked at can be sent to somebody.
function search(fields, changed) {
  const here = new URLSearchParams(location.search);
  const inputs = fields.map((f) => f.options
    ? h('select', { name: f.name, 'aria-label': f.label }, f.options.map(([value, name]) => h('option', { value, selected: here.get(f.name) === value || undefined }, name)))
    : h('input', { type: 'search', name: f.name, 'aria-label': f.label, placeholder: f.label, value: here.get(f.name) || '', maxlength: 200 }));
  const values = () => Object.fromEntries(fields.map((f, i) => [f.name, inputs[i].value.trim()]));
  let timer;
  const now = () => {
    clearTimeout(timer);
    const q = new URLSearchParams(Object.entries(values()).filter(([, v]) => v));
    history.replaceState(null, '', location.pathname + (q.toString() ? '?' + q : ''));
    changed();
  };
  for (const i of inputs) i.addEventListener(i.tagName === 'SELECT' ? 'change' : 'input', () => { clearTimeout(timer); timer = setTimeout(now, i.tagName === 'SELECT' ? 0 : 250); });
  const el = h('form', { class: 'row search', role: 'search', onsubmit: (e) => { e.preventDefault(); now(); } }, inputs);
  return { el, values };
}
