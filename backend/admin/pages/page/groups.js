// The groups that read the events of orders, how far each is, and the events that they could not work on.
function groupsView() {
  const stream = h('p', { class: 'soft' }), body = h('div');
  page(h('h1', null, 'Events'), stream, body);
  const again = async () => {
    const got = await get('/groups');
    if (!got.ok) { fill(body, problemLine(got.problem)); return; }
    stream.textContent = count(got.body.stream_entries) + ' entries in the stream; the oldest change that is not in it yet waits for ' + span(got.body.unrelayed_seconds) + '.';
    fill(body, tableOf('Groups', ['Group', ...['Lag', 'Pending', 'Consumers', 'Oldest', 'Dead'].map(number)],
      h('tbody', null, got.body.groups.map((g) => h('tr', null, h('td', null, h('a', { href: '/admin/groups/' + part(g.name) }, own(g.name)), !g.known && h('small', { class: 'soft' }, 'made by hand')), h('td', { class: 'n' }, count(g.lag)), h('td', { class: 'n' }, count(g.pending)),
        h('td', { class: 'n' + (g.consumers ? '' : ' bad') }, count(g.consumers)), h('td', { class: 'n' }, span(g.oldest_age_seconds)), h('td', { class: 'n' + (g.dead ? ' bad' : '') }, count(g.dead)))))), !got.body.groups.length && h('p', { class: 'soft' }, 'Nobody reads the events.'));
  };
  every(again);
}

function groupView(name) {
  const at = '/groups/' + part(name);
  const act = (verb, d) => async () => {
    const got = await ask({ title: (verb === 'retry' ? 'Run ' : 'Drop ') + d.event + (verb === 'retry' ? ' again?' : '?'), text: verb === 'retry' ? 'The group is given the event once more.' : 'The group never hears of this event again.', verb: verb === 'retry' ? 'Run again' : 'Drop', danger: verb !== 'retry', fields: [reasonField], run: (v) => post(at + '/dead/' + part(d.event) + '/' + verb, { reason: v.reason }) });
    if (got) { toast(verb === 'retry' ? 'It is run again.' : 'Dropped.'); letters.again(); }
  };
  const remove = async () => {
    const got = await ask({ title: 'Remove the group ' + name + '?', text: 'It forgets how far it was, and its dead events go. Only for a group that nobody runs any more.', verb: 'Remove', danger: true, fields: [reasonField], run: (v) => post(at + '/remove', { reason: v.reason }) });
    if (got) location.assign('/admin/groups');
  };
  const letters = list({
    label: 'Dead events', head: ['Event', 'Died', number('Tries'), 'Reason', 'Payload', spoken('Actions')], empty: 'No dead events.',
    load: (after) => get(at + '/dead', { limit: 50, after }), pick: (b) => ({ rows: b.dead, next: b.next }),
    row: (d) => h('tr', null, h('td', null, d.event), h('td', null, stamp(d.died_at)), h('td', { class: 'n' }, count(d.deliveries)), h('td', { class: 'wide' }, own(d.reason)), h('td', { class: 'wide' }, h('code', null, own(d.body))),
      h('td', { class: 'acts' }, d.retrying ? h('span', { class: 'soft' }, 'is run again') : [button('Run again', act('retry', d), 'small', 'Run ' + d.event + ' again'), button('Drop', act('cancel', d), 'small', 'Drop ' + d.event)])),
  });
  page(h('p', null, h('a', { href: '/admin/groups' }, '← Events')), h('div', { class: 'row' }, h('h1', null, own(name)), button('Remove the group', remove, 'danger')), letters.el);
  letters.restart();
}
