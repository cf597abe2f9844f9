// Dead letters: accepted orders that could not be written. Each holds its unit until it is retried or cancelled.
function deadDetails(d, columns) {
  return h('tr', { class: 'detail' }, h('td', { colspan: String(columns) }, h('dl', { class: 'facts' },
    fact('Buyer', userText(d.buyer || '–')), fact('Payload', h('code', null, userText(d.message || d.raw || '–'))), fact('Holds', d.units ? '1 unit' : d.unbacked ? 'no unit (sold again)' : 'no unit'), fact('Worker crashes', count(d.crashes))),
  h('ol', { class: 'history' }, d.history.map((a) => h('li', null, stamp(a.at), ' ', userText(a.reason))))));
}

// effect describes a retry or a cancel of rows, of which some are orders.
function effect(orders, rows, verb) {
  const one = orders.length === 1;
  if (verb === 'retry') return one ? 'The order is queued again, without its failures.' : 'The orders are queued again, without their failures.';
  if (!orders.length) return rows.length === 1 ? 'The entry is not an order. It is dropped.' : 'The entries are not orders. They are dropped.';
  const back = one ? 'The unit of the order goes back on sale, and its buyer may buy again.' : 'The units of the orders go back on sale, and their buyers may buy again.';
  return orders.length === rows.length ? back : back + ' Entries that are not orders are dropped.';
}

// unavailable returns '' or a text that names unavailable shards and the effect.
const unavailable = (shards = [], effect) => shards.length ? 'Unavailable shards: ' + shards.join(', ') + '. ' + effect + '; see sluice shard list.' : '';

function deadView() {
  const columns = 7, chosen = new Set(), opened = new Set();
  const all = h('input', { type: 'checkbox', 'aria-label': 'Select all on this page', onchange: () => {
    for (const box of letters.table.querySelectorAll('tbody input[type=checkbox]')) if (box.checked !== all.checked) box.click();
  } });
  const selected = h('span', { class: 'soft', role: 'status' });
  const some = [button('Retry', () => decide('retry')), button('Cancel', () => decide('cancel'), 'danger')];
  const find = search([{ name: 'error_contains', label: 'Error contains' }, { name: 'sale', label: 'Sale id' }, { name: 'order', label: 'Order id' }], () => letters.restart());

  function mark() {
    selected.textContent = chosen.size ? count(chosen.size) + ' selected' : '';
    for (const b of some) b.disabled = !chosen.size;
  }

  const missing = h('p', { class: 'problem', role: 'status' });
  const letters = list({
    label: 'Dead letters', head: [{ name: all }, 'Order', 'Sale', 'Died', number('Attempts'), 'Error', spoken('Actions')],
    empty: 'No dead letters.',
    load: async (after) => {
      const { error_contains: text, sale, order } = find.values();
      if (order) {
        const got = await get('/dead/' + part(order));
        if (got.ok) return { ok: true, body: { dead: [got.body] } };
        return got.status === 404 ? { ok: true, body: { dead: [] } } : got;
      }
      return get('/dead', { error_contains: text, sale, limit: 50, after });
    },
    pick: (b) => {
      put(missing, unavailable(b.unavailable_shards, 'Their dead letters are missing'));
      return { rows: b.dead, next: b.next };
    },
    row: (d) => {
      const box = h('input', { type: 'checkbox', 'aria-label': 'Select ' + d.key, onchange: () => { if (box.checked) chosen.add(d.key); else chosen.delete(d.key); mark(); } });
      box.checked = chosen.has(d.key);
      const name = d.order_id || d.key.slice(0, 12) + '…';
      const details = deadDetails(d, columns);
      const expand = (shown) => {
        open.setAttribute('aria-expanded', String(shown));
        details.hidden = !shown;
        if (shown) opened.add(d.key); else opened.delete(d.key);
      };
      const open = h('button', { type: 'button', class: 'link', onclick: () => expand(details.hidden) }, name);
      expand(opened.has(d.key));
      const row = h('tr', { 'data-key': d.key }, h('td', null, box), h('td', null, open), h('td', null, d.sale_id ? h('a', { href: '/admin/sales/' + part(d.sale_id) }, d.sale_id) : '–'), h('td', null, stamp(d.died_at)), h('td', { class: 'n' }, count(d.attempts)),
        h('td', { class: 'wide' }, d.cancelling && h('span', { class: 'badge', 'data-state': 'paused' }, 'being cancelled'), ' ', userText(d.reason)),
        h('td', { class: 'acts' }, d.order_id && !d.cancelling && button('Retry', () => settle([d], 'retry'), 'small', 'Retry order ' + name), button(d.order_id ? 'Cancel' : 'Drop', () => settle([d], 'cancel'), 'small', 'Cancel order ' + name)));
      return [row, details];
    },
  });
  letters.el.addEventListener('shown', (e) => { // a reload keeps the selection and open details; another page clears them
    const keys = new Set(e.detail.map((d) => d.key));
    for (const kept of [chosen, opened]) for (const key of kept) if (!keys.has(key)) kept.delete(key);
    all.checked = chosen.size > 0 && chosen.size === keys.size;
    mark();
  });

  const decide = (verb) => settle(letters.rows().filter((d) => chosen.has(d.key)), verb);

  function settle(picked, verb) {
    const orders = picked.filter((d) => d.order_id), rows = verb === 'retry' ? orders : picked;
    if (!rows.length) {
      toast('Only orders can be retried.');
      return;
    }
    const one = rows.length === 1, action = verb === 'retry' ? 'Retry' : orders.length ? 'Cancel' : 'Drop';
    const noun = orders.length ? (one ? 'order' : 'orders') : one ? 'entry' : 'entries';
    change({ title: action + ' ' + (one ? noun + ' ' + rows[0].key : count(rows.length) + ' ' + noun) + '?', text: effect(orders, rows, verb), verb: verb === 'retry' ? action : action + ' ' + noun, danger: verb === 'cancel', fields: [reasonField], run: (v) => inSequence(rows, (d) => post('/dead/' + part(d.key) + '/' + verb, { reason: v.reason })), then: () => letters.reload() });
  }

  page(h('h1', null, 'Dead letters'), h('p', { class: 'soft' }, 'Accepted orders that could not be written. Each holds its unit until you retry or cancel it.'), find.el,
    h('div', { class: 'row acts' }, some, selected, h('span', { class: 'gap' }), button('Retry all matching', () => settleMatching('retry', find.values(), letters)), button('Cancel all matching', () => settleMatching('cancel', find.values(), letters), 'danger')), missing, letters.el);
  mark();
  letters.restart();
  live.onLog(() => { if (!chosen.size && !opened.size) letters.reload(); }); // rows do not move while the admin reads or selects
}
