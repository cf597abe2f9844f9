// The consumer groups of order events, their progress, and their dead events.
function groupsView() {
  const stream = h('p', { class: 'soft' }), rows = h('tbody');
  page(h('h1', null, 'Events'), stream, tableOf('Groups', ['Group', ...['Lag', 'Pending', 'Consumers', 'Oldest', 'Dead'].map(number)], rows));
  pollVisible(reloader(() => get('/groups'), stream, (b) => {
    fill(stream, counted(b.stream_entries, 'entry', 'entries') + ' in the stream. Oldest event not in the stream yet: ' + span(b.unrelayed_seconds) + '.' + (b.groups.length ? '' : ' No consumer groups.'));
    fill(rows, b.groups.map((g) => h('tr', null, h('td', null, h('a', { href: '/admin/groups/' + part(g.name) }, userText(g.name)), !g.known && h('small', { class: 'soft' }, 'created manually')), h('td', { class: 'n' }, count(g.lag)), h('td', { class: 'n' }, count(g.pending)),
        h('td', { class: 'n' + (g.consumers ? '' : ' bad') }, count(g.consumers)), h('td', { class: 'n' }, span(g.oldest_age_seconds)), h('td', { class: 'n' + (g.dead ? ' bad' : '') }, count(g.dead)))));
  }));
}

function groupView(name) {
  const at = '/groups/' + part(name);
  const act = (verb, d) => () => change({ title: (verb === 'retry' ? 'Retry ' : 'Drop ') + d.event + '?', text: verb === 'retry' ? 'The event is delivered to the group again.' : 'The event is never delivered to this group again.', verb: verb === 'retry' ? 'Retry' : 'Drop', danger: verb !== 'retry', fields: [reasonField], run: (v) => post(at + '/dead/' + part(d.event) + '/' + verb, { reason: v.reason }), message: verb === 'retry' ? 'Retrying.' : 'Dropped.', then: () => letters.reload() });
  const remove = () => change({ title: 'Remove the group ' + name + '?', text: 'This deletes its position and its dead events. Remove only groups without consumers.', verb: 'Remove', danger: true, fields: [reasonField], run: (v) => post(at + '/remove', { reason: v.reason }), then: () => location.assign('/admin/groups') });
  const letters = list({
    label: 'Dead events', head: ['Event', 'Died', number('Attempts'), 'Reason', 'Payload', spoken('Actions')], empty: 'No dead events.',
    load: (after) => get(at + '/dead', { limit: 50, after }), pick: (b) => ({ rows: b.dead, next: b.next }),
    row: (d) => h('tr', null, h('td', null, d.event), h('td', null, stamp(d.died_at)), h('td', { class: 'n' }, count(d.deliveries)), h('td', { class: 'wide' }, userText(d.reason)), h('td', { class: 'wide' }, h('code', null, userText(d.body))),
      h('td', { class: 'acts' }, d.retrying ? h('span', { class: 'soft' }, 'retrying') : [button('Retry', act('retry', d), 'small', 'Retry ' + d.event), button('Drop', act('cancel', d), 'small', 'Drop ' + d.event)])),
  });
  page(h('p', null, h('a', { href: '/admin/groups' }, '← Events')), h('div', { class: 'row' }, h('h1', null, userText(name)), button('Remove group', remove, 'danger')), letters.el);
  letters.restart();
  live.onLog(() => letters.reload());
}
