// Webhook endpoints and their deliveries.
const endpointState = (e) => h('span', { class: 'badge', 'data-state': e.state === 'active' ? 'open' : 'paused' }, e.state);

function webhooksView() {
  const body = h('div');
  page(h('h1', null, 'Webhooks'), body);
  pollVisible(async () => {
    const got = await get('/webhooks');
    if (!got.ok) { fill(body, problemLine(got.problem)); return; }
    fill(body, tableOf('Endpoints', ['Endpoint', 'State', ...['Waiting', 'Failed', 'Oldest'].map(number)],
      h('tbody', null, got.body.webhooks.map((e) => h('tr', null, h('td', { class: 'wide' }, h('a', { href: '/admin/webhooks/' + part(e.id) }, userText(e.title || e.url)), h('small', { class: 'soft' }, userText(e.url))), h('td', null, endpointState(e), e.reason && h('small', { class: 'soft' }, userText(e.reason))),
        h('td', { class: 'n' }, count(e.waiting)), h('td', { class: 'n' + (e.failed ? ' bad' : '') }, count(e.failed)), h('td', { class: 'n' }, span(e.oldest_age_seconds)))))), !got.body.webhooks.length && h('p', { class: 'soft' }, 'No webhooks yet. Add one with: sluice webhook add URL'));
  });
}

function webhookView(id) {
  const at = '/webhooks/' + part(id);
  const head = h('div'), acts = h('div', { class: 'row acts' });
  const act = (title, text, verb, path, message, body) => async () => {
    const got = await openDialog({ title, text, verb, fields: [reasonField], run: (v) => post(at + path, { ...body, reason: v.reason }) });
    if (got) { toast(message); reload(); deliveries.reload(); }
  };
  const find = search([{ name: 'state', label: 'State', options: [['', 'Any state'], ['waiting', 'waiting'], ['delivered', 'delivered'], ['failed', 'failed']] }], () => deliveries.restart());
  const deliveries = list({
    label: 'Deliveries', head: ['Delivery', 'Type', 'State', number('Attempts'), 'Created', 'Next or last attempt', spoken('Actions')], empty: 'No deliveries.',
    load: (before) => get(at + '/deliveries', { ...find.values(), limit: 50, before }), pick: (b) => ({ rows: b.deliveries, next: b.next }),
    row: (d) => {
      const open = h('button', { type: 'button', class: 'link', 'aria-expanded': 'false', onclick: async () => {
        const shown = open.getAttribute('aria-expanded') === 'true';
        if (shown) { row.nextSibling.remove(); open.setAttribute('aria-expanded', 'false'); return; }
        const got = await get(at + '/deliveries/' + part(d.id));
        if (open.getAttribute('aria-expanded') === 'true') return;
        open.setAttribute('aria-expanded', 'true');
        row.after(h('tr', { class: 'detail' }, h('td', { colspan: '7' }, got.ok ? [h('code', null, userText(got.body.body)), h('ol', { class: 'history' }, got.body.log.map((a) => h('li', null, stamp(a.at), ' ', a.status ? 'HTTP ' + a.status : 'no response', ' in ' + span(a.seconds) + ' ', a.error && userText(a.error), a.answer && h('code', null, userText(a.answer)))))] : problemLine(got.problem))));
      } }, d.id);
      const row = h('tr', null, h('td', null, open), h('td', null, d.type), h('td', null, h('span', { class: 'badge', 'data-state': { delivered: 'open', failed: 'sold_out' }[d.state] || 'scheduled' }, d.sending ? 'sending' : d.state)), h('td', { class: 'n' }, count(d.attempts)), h('td', null, stamp(d.created_at)), h('td', null, stamp(d.due_at || d.ended_at)),
        h('td', { class: 'acts' }, button('Resend', act('Resend ' + d.id + '?', 'The receiver may get it twice, with the same id.', 'Resend', '/deliveries/' + part(d.id) + '/redeliver', 'Resending.'), 'small', 'Resend ' + d.id)));
      return row;
    },
  });
  async function reload() {
    const got = await get(at);
    if (!got.ok) { fill(head, problemLine(got.problem)); return; }
    const e = got.body;
    fill(head, h('h1', null, userText(e.title || e.url)), h('p', { class: 'row' }, endpointState(e), e.reason && h('span', { class: 'soft' }, userText(e.reason)), h('span', { class: 'soft' }, userText(e.url))), h('p', { class: 'soft' }, count(e.waiting) + ' waiting, ' + count(e.failed) + ' failed, added by ', userText(e.created_by)));
    fill(acts, e.state === 'active' ? button('Pause', act('Pause this endpoint?', 'Deliveries wait until you resume it.', 'Pause', '/pause', 'Paused.')) : button('Resume', act('Resume this endpoint?', 'Waiting deliveries are sent in order.', 'Resume', '/resume', 'Resumed.'), 'main'),
      e.failed > 0 && button('Resend failed deliveries', act('Resend failed deliveries?', count(e.failed) + ' deliveries are attempted again.', 'Resend', '/redeliver', 'Resending.')), button('Ping', async () => { const got = await openDialog({ title: 'Send a test message?', verb: 'Send', run: () => post(at + '/ping') }); if (got) { toast('Sent.'); deliveries.restart(); } }));
  }
  page(h('p', null, h('a', { href: '/admin/webhooks' }, '← Webhooks')), head, acts, h('h2', null, 'Deliveries'), find.el, deliveries.el);
  reload();
  deliveries.restart();
}
