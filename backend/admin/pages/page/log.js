// The action log.
const targetLink = (l) => {
  const kind = l.action.split('.')[0];
  if (kind === 'sale') return h('a', { href: '/admin/sales/' + part(l.target) }, userText(l.target));
  if (l.action === 'rehearsal.report') return h('a', { href: '/admin/v1/reports/' + part(l.target) + '/page', target: '_blank', rel: 'noopener' }, userText(l.target));
  if (kind === 'order' || kind === 'payment' || l.action === 'dead.retry') return orderLink(l.target);
  if (kind === 'webhook' && l.target.startsWith('ep_')) return h('a', { href: '/admin/webhooks/' + part(l.target) }, userText(l.target));
  return userText(l.target);
};
const logRow = (l) => h('tr', null, h('td', null, stamp(l.at)), h('td', null, userText(l.actor)), h('td', null, l.action), h('td', { class: 'wide' }, targetLink(l)), h('td', { class: 'wide' }, userText(l.detail)));
const logHead = ['Time', 'Admin', 'Action', 'Target', 'Details'];

const logTable = (lines) => (lines.length ? tableOf('Action log', logHead, h('tbody', null, lines.map(logRow))) : h('p', { class: 'soft' }, 'No entries yet.'));

// logOf returns a reloader of the entries of the action log that match a query.
const logOf = (query, at) => reloader(() => get('/log', query), at, (b) => fill(at, logTable(b.log)));

function logView() {
  const find = search([{ name: 'actor', label: 'Admin' }, { name: 'action', label: 'Action, such as sale.pause' }, { name: 'target', label: 'Target' }, { name: 'sale', label: 'Sale id' }], () => lines.restart());
  const lines = list({ label: 'Action log', head: logHead, empty: 'No entries.', load: (before) => get('/log', { ...find.values(), limit: 50, before }), pick: (b) => ({ rows: b.log, next: b.next }), row: logRow });
  page(h('h1', null, 'Log'), find.el, lines.el);
  lines.restart();
  live.onLog(() => lines.reload());
}
