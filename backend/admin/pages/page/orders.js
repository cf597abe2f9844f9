// Orders in the database: search, one order with its payments, and cancellation.
const orderStates = { created: 'open', paid: 'open', cancelled: 'sold_out' };
const orderLink = (id) => h('a', { href: '/admin/orders/' + part(id) }, id);
const saleLink = (id) => h('a', { href: '/admin/sales/' + part(id) }, id);

// orderBadge shows the status of an order. An unpaid order with a payment deadline awaits its payment.
const orderBadge = (o) => h('span', { class: 'badge', 'data-state': o.pay_by ? 'paused' : orderStates[o.status] }, o.pay_by ? 'awaits payment' : o.cancelled_by === 'hold' ? 'expired' : o.status);

const cancelButton = (o, then) => o.status === 'created' && button('Cancel', () => change({ title: 'Cancel order ' + o.order_id + '?', text: 'Its unit goes back on sale, and the buyer may buy again.', verb: 'Cancel order', danger: true, fields: [reasonField], run: (v) => post('/orders/' + part(o.order_id) + '/cancel', { reason: v.reason }), message: 'Order cancelled.', then }), 'small danger', 'Cancel order ' + o.order_id);

// findOrder looks for an order id among the orders in the database, and then among the dead letters.
async function findOrder(id) {
  const got = await get('/orders/' + part(id));
  if (got.ok) return { ok: true, body: { orders: [got.body] } };
  if (got.status !== 404) return got;
  const dead = await get('/dead/' + part(id));
  if (dead.ok) return { ok: false, problem: 'This order could not be written. Open Dead letters to retry or cancel it.' };
  return { ok: true, body: { orders: [] } };
}

function ordersView() {
  const find = search([{ name: 'buyer', label: 'Buyer' }, { name: 'order', label: 'Order id' }, { name: 'sale', label: 'Sale id' }, { name: 'status', label: 'Status', options: [['', 'Any status'], ...Object.keys(orderStates).map((status) => [status, status])] }], () => orders.restart());
  const orders = list({
    label: 'Orders', head: ['Order', 'Sale', 'Buyer', 'Status', 'Created', 'Pay by', spoken('Actions')], empty: 'No orders in the database match. An accepted order is written within seconds; until then it is queued.',
    load: (after) => {
      const { order, ...rest } = find.values();
      return order ? findOrder(order) : get('/orders', { ...rest, sort: 'newest', limit: 50, after });
    },
    pick: (b) => ({ rows: b.orders, next: b.next }),
    row: (o) => h('tr', { 'data-key': o.order_id }, h('td', null, orderLink(o.order_id)), h('td', null, saleLink(o.sale_id)), h('td', { class: 'wide' }, userText(o.buyer)), h('td', null, orderBadge(o)), h('td', null, stamp(o.created_at)), h('td', null, o.pay_by ? stamp(o.pay_by) : '–'),
      h('td', { class: 'acts' }, cancelButton(o, () => orders.reload()))),
  });
  page(h('h1', null, 'Orders'), h('p', { class: 'soft' }, 'Orders in the database, newest first. A search by buyer without a sale covers the 500 newest sales.'), find.el, orders.el);
  orders.restart();
  live.onLog(() => orders.reload());
}

function orderView(id) {
  const state = h('p', { class: 'row' }), acts = h('div', { class: 'row acts' }), facts = h('dl', { class: 'facts' }), payments = h('div'), history = h('div');
  page(h('p', null, h('a', { href: '/admin/orders' }, '← Orders')), h('h1', null, 'Order ', userText(id)), state, acts, h('section', { class: 'card' }, h('h2', null, 'Details'), facts),
    h('section', { class: 'card' }, h('h2', null, 'Payments'), payments), h('section', { class: 'card' }, h('h2', null, 'History'), history));
  const loadHistory = logOf({ target: id, limit: 20 }, history);
  const reload = reloader(() => get('/orders/' + part(id)), state, (o) => {
    fill(state, orderBadge(o), o.returning && h('span', { class: 'soft' }, 'Its unit has not been returned to the sale yet.'));
    fill(acts, cancelButton(o, reload));
    fill(facts, fact('Sale', saleLink(o.sale_id)), fact('Buyer', h('a', { href: '/admin/orders?buyer=' + part(o.buyer) }, userText(o.buyer))), fact('Created', stamp(o.created_at)), fact('Changed', stamp(o.updated_at)), o.pay_by && fact('Pay by', stamp(o.pay_by)),
      o.reference && fact('Payment', userText(o.reference)), o.cancelled_by && fact('Cancelled by', o.cancelled_by === 'hold' ? 'payment deadline' : userText(o.cancelled_by)), o.reason && fact('Reason', userText(o.reason)));
    fill(payments, o.payments.length ? tableOf('Payments', paymentHead, h('tbody', null, o.payments.map((p) => paymentRow(p, reload)))) : h('p', { class: 'soft' }, 'No payments yet.'));
    loadHistory();
  });
  reload();
  live.onLog(reload);
}
