// spoken is a column heading for screen readers only.
const spoken = (text) => ({ name: h('span', { class: 'unseen' }, text) });

// list shows one page of a long list at a time. load(cursor) returns a result like that of api, pick(body) returns { rows, next },
// and row(entry) returns the table row of an entry, or several rows.
function list({ head, label, load, pick, row, empty }) {
  const body = h('tbody');
  const note = h('p', { class: 'soft note', role: 'status' }, loading);
  const first = button('First', () => show([''])), back = button('Previous', () => show(trail.slice(0, -1))), more = button('Next', () => show([...trail, next]));
  const pages = h('div', { class: 'row pages', hidden: true }, first, back, more);
  const table = tableOf(label, head, body);
  const el = h('div', { class: 'list' }, table, note, pages);
  // trail has the cursors of the pages up to the one that is shown, wanted those up to the one requested last.
  let trail = [''], wanted = trail, next = '', turn = 0, rows = [], kept = history.state?.trail;
  const restart = () => { show(kept || ['']); kept = null; };

  async function show(to) {
    const mine = ++turn;
    wanted = to;
    el.classList.add('busy');
    const got = await load(to[to.length - 1]);
    if (mine !== turn) return; // a later request replaced this one
    el.classList.remove('busy');
    if (!got.ok) {
      wanted = trail;
      note.textContent = got.problem;
      note.classList.add('problem');
      return;
    }
    note.classList.remove('problem');
    const found = pick(got.body);
    if (!found.rows.length && !found.next && to.length > 1) { // the page has become empty
      show(to.slice(0, -1));
      return;
    }
    trail = to;
    history.replaceState({ trail }, ''); // for Back and a reload
    next = found.next ? String(found.next) : '';
    rows = found.rows;
    fill(body, rows.flatMap(row));
    note.textContent = rows.length ? '' : next ? 'No matches on this page. Continue with Next.' : typeof empty === 'function' ? empty() : empty;
    pages.hidden = trail.length < 2 && !next;
    first.disabled = back.disabled = trail.length < 2;
    more.disabled = !next;
    el.dispatchEvent(new CustomEvent('shown', { detail: rows }));
  }
  return { el, table, reload: () => show(wanted), restart, rows: () => rows };
}

// search is a form that keeps its fields in the URL, so that the URL can be shared.
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
