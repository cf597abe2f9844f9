// All sales, newest first, one page at a time.
const soldBar = (s) => {
  const bar = h('span', { class: 'bar' });
  bar.style.setProperty('--share', String(s.stock ? Math.min(1, (s.left === null ? s.sold : s.stock - s.left) / s.stock) : 0));
  return h('span', { class: 'track small', role: 'img', 'aria-label': count(s.left === null ? s.sold : s.stock - s.left) + ' of ' + count(s.stock) + ' sold' }, bar);
};

function salesView() {
  const find = search([{ name: 'q', label: 'Search title or id' }, { name: 'state', label: 'State', options: [['', 'Any state'], ...Object.entries(words)] }], () => sales.restart());
  const sales = list({
    label: 'Sales', head: ['Sale', 'State', ...['Left', 'Stored', 'Stock'].map(number), spoken('Share sold'), 'Opens', 'Price'], empty: 'No sales found.',
    load: (after) => get('/sales', { ...find.values(), limit: 50, after }), pick: (b) => ({ rows: b.sales, next: b.next }),
    row: (s) => h('tr', null, h('td', { class: 'wide' }, h('a', { href: '/admin/sales/' + part(s.id) }, userText(s.title)), h('small', { class: 'soft' }, s.id)), h('td', null, badge(s.state), !s.applied && s.state !== 'closed' && h('small', { class: 'soft' }, s.left === null ? 'unknown in Redis' : 'not applied yet')),
      h('td', { class: 'n' }, count(s.left)), h('td', { class: 'n' }, count(s.sold)), h('td', { class: 'n' }, count(s.stock)), h('td', null, soldBar(s)), h('td', null, stamp(s.opens_at)), h('td', null, price(s.price))),
  });
  page(h('div', { class: 'row' }, h('h1', null, 'Sales'), button('New sale', newSale, 'main')), find.el, sales.el);
  sales.restart();
  live.onLog(() => sales.reload());
}
