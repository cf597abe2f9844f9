// Payments without an order to pay, which the shop must refund.
const outcomes = { paid: 'paid the order', order_cancelled: 'order was cancelled', paid_already: 'order was paid already', mismatch: 'wrong amount', failed: 'failed' };
const paymentHead = ['Payment', 'Received', 'Order', 'Sale', number('Amount'), 'Outcome', 'Refund', spoken('Actions')];

const refundState = (p) => !p.refund ? '–' : p.settled_at ? [h('span', { class: 'badge', 'data-state': 'open' }, 'refunded'), h('small', { class: 'soft' }, stamp(p.settled_at), ' by ', userText(p.settled_by), p.note && [' · ', userText(p.note)])]
  : [h('span', { class: 'badge', 'data-state': 'sold_out' }, 'due'), h('small', { class: 'soft' }, 'for ' + span(Math.max(0, (live.now() - new Date(p.at)) / 1000)))];

const paymentRow = (p, done) => h('tr', { 'data-key': p.payment }, h('td', null, userText(p.reference || '–'), h('small', { class: 'soft' }, 'no. ' + p.payment)), h('td', null, stamp(p.at)), h('td', null, orderLink(p.order_id)), h('td', null, p.sale_id ? saleLink(p.sale_id) : '–'), h('td', { class: 'n' }, price(p.price)),
  h('td', null, outcomes[p.outcome] || p.outcome.replaceAll('_', ' ')), h('td', null, refundState(p)), h('td', { class: 'acts' }, p.refund && !p.settled_at && button('Mark refunded', () => settleRefund(p, done), 'small', 'Mark payment ' + p.payment + ' refunded')));

const settleRefund = (p, then) => change({
  title: 'Mark payment ' + p.payment + ' refunded?', text: 'sluice does not transfer money. Refund ' + price(p.price) + ' at your payment provider first, then record it here.', verb: 'Mark refunded',
  fields: [{ name: 'note', label: 'Note', maxlength: 200, placeholder: 'Optional', help: 'Such as the number of the refund. Recorded with your name.' }], run: (v) => post('/payments/' + part(p.payment) + '/settle', { note: v.note }), message: 'Recorded.', then,
});

function refundsView() {
  const find = search([{ name: 'refund', label: 'Payments', options: [['open', 'Refunds due'], ['', 'All payments']] }, { name: 'sale', label: 'Sale id' }, { name: 'order', label: 'Order id' }], () => payments.restart());
  const payments = list({
    label: 'Payments', head: paymentHead, empty: () => (find.values().refund ? 'No refunds due.' : 'No payments found.'), load: (after) => get('/payments', { ...find.values(), limit: 50, after }),
    pick: (b) => ({ rows: b.payments, next: b.next }), row: (p) => paymentRow(p, () => payments.reload()),
  });
  page(h('h1', null, 'Refunds'), h('p', { class: 'soft' }, 'Payments that paid no order: the order was cancelled or paid already, or the amount was wrong. Refund them at your payment provider.'), find.el, payments.el);
  payments.restart();
  live.onLog(() => payments.reload());
}
