// Rehearsals: the existing copies, and the reports of ended rehearsals.
const verdicts = { go: 'open', 'no-go': 'sold_out', unclear: 'paused' };

function rehearsalsView() {
  const copies = h('div'), reports = h('div');
  page(h('h1', null, 'Rehearsals'), h('p', { class: 'soft' }, 'A rehearsal sends simulated buyers and bots to a copy of a sale. Start one with ', h('code', null, 'sluice rehearse SALE'), '. Its report is stored here.'),
    h('section', { class: 'card' }, h('h2', null, 'Copies'), copies), h('section', { class: 'card' }, h('h2', null, 'Reports'), reports));

  const remove = (s) => () => change({ title: 'Remove ' + s.id + '?', text: 'The copy is closed and removed with its orders. A running rehearsal ends.', verb: 'Remove', danger: true, run: () => post('/rehearsals/' + part(s.id) + '/remove'), message: 'Removed.', then: () => reload() });
  const loadCopies = reloader(() => get('/rehearsals'), copies, (b) => fill(copies, !b.rehearsals.length ? h('p', { class: 'soft' }, 'No copies exist.') : tableOf('Copies', ['Copy', 'State', number('Left'), number('Stock'), 'Closes', spoken('Actions')], h('tbody', null, b.rehearsals.map((s) => h('tr', { 'data-key': s.id },
      h('td', { class: 'wide' }, saleLink(s.id)), h('td', null, badge(s.state)), h('td', { class: 'n' }, count(s.left)), h('td', { class: 'n' }, count(s.stock)), h('td', null, stamp(s.closes_at)), h('td', { class: 'acts' }, button('Remove', remove(s), 'small', 'Remove ' + s.id))))))));
  const loadReports = reloader(() => get('/reports'), reports, (b) => fill(reports, !b.reports.length ? h('p', { class: 'soft' }, 'No reports yet.') : tableOf('Reports', ['Report', 'Sale', 'Verdict', 'Ended', 'Admin', spoken('Actions')], h('tbody', null, b.reports.map((r) => h('tr', { 'data-key': r.id },
      h('td', { class: 'wide' }, h('a', { href: '/admin/v1/reports/' + part(r.id) + '/page', target: '_blank', rel: 'noopener' }, r.id)), h('td', null, saleLink(r.sale_id)), h('td', null, h('span', { class: 'badge', 'data-state': verdicts[r.verdict] }, r.verdict)), h('td', null, stamp(r.stored_at)), h('td', null, userText(r.stored_by)),
      h('td', { class: 'acts' }, h('a', { href: '/admin/v1/reports/' + part(r.id) + '/page', download: r.id + '.html', 'aria-label': 'Download ' + r.id }, 'Download'))))))));
  const reload = () => { loadCopies(); loadReports(); };
  reload();
  live.onLog(reload);
}
