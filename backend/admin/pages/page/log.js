// Who did what, and when.
const targetLink = (l) => {
  const kind = l.action.split('.')[0];
  if (kind === 'sale') return h('a', { href: '/admin/sales/' + part(l.target) }, own(l.target));
  if (kind === 'webhook' && l.target.startsWith('ep_')) return h('a', { href: '/admin/webhooks/' + part(l.target) }, own(l.target));
  return own(l.target);
};
const logRow = (l) => h('tr', null, h('td', null, stamp(l.at)), h('td', null, own(l.actor)), h('td', null, l.action), h('td', { class: 'wide' }, targetLink(l)), h('td', { class: 'wide' }, own(l.detail)));
const logHead = ['When', 'Who', 'What', 'To what', 'Detail'];

const logTable = (lines) => (lines.length ? tableOf('What was done', logHead, h('tbody', null, lines.map(logRow))) : h('p', { class: 'soft' }, 'Nothing yet.'));

function logView() {
  const find = search([{ name: 'actor', label: 'Who' }, { name: 'action', label: 'What, such as sale.pause or dead' }, { name: 'target', label: 'To what' }], () => lines.restart());
  const lines = list({ label: 'What was done', head: logHead, empty: 'Nothing was done.', load: (before) => get('/log', { ...find.values(), limit: 50, before }), pick: (b) => ({ rows: b.log, next: b.next }), row: logRow });
  page(h('h1', null, 'Log'), find.el, lines.el);
  lines.restart();
  live.onLog(() => lines.again());
}
