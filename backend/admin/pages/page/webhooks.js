// Webhook endpoints and their deliveries.
const eventTypes = ['order.created', 'order.paid', 'order.cancelled'];
const selected = (types) => (types.length ? types : eventTypes); // an endpoint without types receives all

// endpointFields are the settings of an endpoint.
const endpointFields = (e) => [
  { name: 'url', label: 'URL', type: 'url', required: true, maxlength: 2000, value: e.url, placeholder: 'https://shop.example/hooks' },
  { name: 'title', label: 'Description', maxlength: 200, value: e.title, placeholder: 'Optional' },
  ...eventTypes.map((type) => ({ name: type, label: 'Send ' + type, type: 'checkbox', checked: selected(e.types).includes(type) })),
  { name: 'sales', label: 'Only these sales', value: e.sales.join(' '), placeholder: 'All sales', help: 'Sale ids, separated by spaces.' },
];

function endpointValues(v) {
  const types = eventTypes.filter((type) => v[type]);
  if (!types.length) throw new Error('Select at least one event.');
  return { url: v.url, title: v.title, types: types.length === eventTypes.length ? [] : types, sales: v.sales.split(/[\s,]+/).filter(Boolean), reason: v.reason };
}

const secretText = 'The receiver verifies deliveries with this secret. It is not shown again.';

async function newWebhook() {
  const got = await openDialog({
    title: 'New webhook', verb: 'Add', text: 'sluice posts order events to this URL, signed, and retries until the receiver answers 2xx.',
    fields: [...endpointFields({ types: [], sales: [] }), { name: 'strict', label: 'One delivery at a time, in the order of all events', type: 'checkbox' }, reasonField],
    run: async (v) => {
      const got = await post('/webhooks', { ...endpointValues(v), strict: v.strict });
      return got.status ? got : { ...got, problem: 'No response. The webhook may have been added, but its secret is lost: look at the list, and rotate its secret or remove it, before you add another one.' };
    },
  });
  if (!got) return;
  await showSecret('Secret of the webhook', secretText, got.body.secret);
  location.assign('/admin/webhooks/' + part(got.body.id));
}
// deliveryCount shows a number of deliveries, of which the server counts at most 10,000.
const deliveryCount = (n) => count(n) + (n === 10_000 ? '+' : '');
const endpointState = (e) => h('span', { class: 'badge', 'data-state': e.state === 'active' ? 'open' : 'paused' }, e.state);

function webhooksView() {
  const rows = h('tbody'), note = h('p', { class: 'soft' });
  page(h('div', { class: 'row' }, h('h1', null, 'Webhooks'), button('New webhook', newWebhook, 'main')), tableOf('Endpoints', ['Endpoint', 'State', ...['Waiting', 'Failed', 'Oldest'].map(number)], rows), note);
  pollVisible(reloader(() => get('/webhooks'), note, (b) => {
    fill(note, !b.webhooks.length && 'No webhooks yet.');
    fill(rows, b.webhooks.map((e) => h('tr', null, h('td', { class: 'wide' }, h('a', { href: '/admin/webhooks/' + part(e.id) }, userText(e.title || e.url)), e.title && h('small', { class: 'soft' }, userText(e.url))), h('td', null, endpointState(e), e.reason && h('small', { class: 'soft' }, userText(e.reason))),
        h('td', { class: 'n' }, deliveryCount(e.waiting)), h('td', { class: 'n' + (e.failed ? ' bad' : '') }, deliveryCount(e.failed)), h('td', { class: 'n' }, span(e.oldest_age_seconds)))));
  }));
}

function webhookView(id) {
  const at = '/webhooks/' + part(id);
  const title = h('h1', null, id), head = h('div'), acts = h('div', { class: 'row acts' });
  const act = (title, text, verb, path, message) => () => change({ title, text, verb, fields: [reasonField], run: (v) => post(at + path, { reason: v.reason }), message, then: () => { reload(); deliveries.reload(); } });
  let current = null;
  const edit = async () => {
    if (!await reload()) return; // the dialog begins with the newest settings
    const begun = { ...current, reason: '' };
    change({ title: 'Edit webhook', verb: 'Save', fields: [...endpointFields(begun), reasonField], run: (v) => {
      const changed = Object.entries(endpointValues(v)).filter(([name, value]) => String(value) !== String(begun[name])); // other admins may change the other settings
      return changed.some(([name]) => name !== 'reason') ? post(at + '/change', Object.fromEntries(changed)) : { ok: true };
    }, message: 'Saved.', then: reload });
  };
  const rotate = () => change({
    title: 'Rotate the secret?', text: 'sluice signs with the new secret immediately, and with the old one too for the chosen time.', verb: 'Rotate', run: (v) => post(at + '/rotate', v),
    fields: [{ name: 'keep', label: 'Keep the old secret', options: [['24h', 'for 24 hours'], ['1h', 'for one hour'], ['168h', 'for seven days'], ['0s', 'no: it is no longer safe']] }, reasonField], then: (got) => showSecret('New secret of the webhook', secretText, got.body.secret).then(reload),
  });
  const remove = () => change({ title: 'Remove this webhook?', text: 'Its deliveries are removed too, and those that wait are not sent. This is permanent.', verb: 'Remove', danger: true, fields: [reasonField], run: (v) => post(at + '/remove', v), then: () => location.assign('/admin/webhooks') });
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
  const reload = reloader(() => get(at), head, (e) => {
    current = e;
    fill(title, userText(e.title || e.url));
    fill(head, h('p', { class: 'row' }, endpointState(e), e.reason && h('span', { class: 'soft' }, userText(e.reason)), h('span', { class: 'soft' }, userText(e.url))), h('p', { class: 'soft' }, deliveryCount(e.waiting) + ' waiting, ' + deliveryCount(e.failed) + ' failed, added by ', userText(e.created_by)),
      e.last_error && h('p', { class: 'soft' }, 'Last error, ', longStamp(e.last_error_at), ': ', userText(e.last_error)),
      h('p', { class: 'soft' }, e.types.length ? e.types.join(', ') : 'all events', e.sales.length ? [' of ', userText(e.sales.join(', '))] : ' of all sales', e.strict && ', one at a time', e.old_secret_until && ['; an old secret signs until ', longStamp(e.old_secret_until)]));
    fill(acts, e.state === 'active' ? button('Pause', act('Pause this endpoint?', 'Deliveries wait until you resume it.', 'Pause', '/pause', 'Paused.')) : button('Resume', act('Resume this endpoint?', 'Waiting deliveries are sent in order.', 'Resume', '/resume', 'Resumed.'), 'main'),
      e.failed > 0 && button('Resend failed deliveries', act('Resend failed deliveries?', deliveryCount(e.failed) + (e.failed === 1 ? ' delivery is' : ' deliveries are') + ' attempted again.', 'Resend', '/redeliver', 'Resending.')), button('Ping', () => change({ title: 'Send a test message?', verb: 'Send', run: () => post(at + '/ping'), message: 'Sent.', then: () => deliveries.restart() })),
      button('Edit', edit), button('Rotate secret', rotate), button('Remove', remove, 'danger'));
  });
  page(h('p', null, h('a', { href: '/admin/webhooks' }, '← Webhooks')), title, head, acts, h('h2', null, 'Deliveries'), find.el, deliveries.el);
  reload();
  deliveries.restart();
  live.onLog(reload);
}
