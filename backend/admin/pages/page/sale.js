// One sale: its audit, its actions and its history.
function auditView(a) {
  const parts = [['left', 'Left'], ...(a.segments ? [['in_transfer', 'In transfer']] : []), ['ready', 'Ready'], ['delayed', 'Delayed'], ['leased', 'Leased'], ['ordered', 'Ordered'], ['dead', 'Dead']];
  a.in_transfer ??= 0;
  const total = parts.reduce((all, [key]) => all + a[key], 0);
  const bar = h('div', { class: 'stack', role: 'img', 'aria-label': parts.map(([key, name]) => name + ' ' + count(a[key])).join(', ') }, parts.map(([key]) => {
    const piece = h('span', { class: 'piece ' + key });
    piece.style.setProperty('--share', String(a.stock ? a[key] / a.stock : 0));
    return piece;
  }));
  return h('div', { class: 'audit' },
    h('p', { class: a.balanced ? 'good' : 'problem' }, a.balanced ? '✓ Balanced: every unit is accounted for.' : '✗ Not balanced' + (total === a.stock ? '.' : ': ' + counted(total, 'unit') + ' counted, the stock is ' + count(a.stock) + '.')),
    (a.differences || a.orders) && h('ul', { class: 'plain', id: 'audit-differences' }, (a.differences || []).map((d) => h('li', null, userText(d))),
      (a.orders || []).map((o) => h('li', null, 'Order ', orderLink(o.order_id), ' of ', userText(o.buyer), ': ', o.found + ', and ' + o.missing))), bar,
    h('dl', { class: 'sum' }, h('div', null, h('dt', null, 'Stock'), h('dd', { id: 'audit-stock' }, count(a.stock))), parts.map(([key, name], i) => h('div', null, h('dt', null, h('i', { class: 'key ' + key }), (i ? '+ ' : '= ') + name), h('dd', { id: 'audit-' + key }, count(a[key]))))),
    (a.unbacked > 0 || a.returning > 0) && h('p', { class: 'soft' }, a.returning > 0 ? counted(a.returning, 'cancelled unit is', 'cancelled units are') + ' not back on sale yet. ' : '', a.unbacked > 0 ? counted(a.unbacked, 'dead letter holds', 'dead letters hold') + ' no unit.' : ''));
}

function saleView(id) {
  const at = '/sales/' + part(id);
  const title = h('h1', null, userText(id)), facts = h('dl', { class: 'facts' }), acts = h('div', { class: 'row acts' }), audit = h('div', { 'aria-live': 'polite' }, h('p', { class: 'soft' }, 'Auditing…')), history = h('div'), state = h('p', { class: 'row' });
  let current = {}; // the sale
  page(h('p', null, h('a', { href: '/admin/sales' }, '← Sales')), title, state, acts, h('div', { class: 'two' }, h('section', { class: 'card' }, h('h2', null, 'Details'), facts, h('p', { class: 'row' }, h('a', { href: '/admin/orders?sale=' + part(id) }, 'Orders of this sale'), h('a', { href: '/admin/dead?sale=' + part(id) }, 'Dead letters of this sale'))),
    h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'Audit'), button('Run audit', () => runAudit())), audit)), h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'History'), h('a', { href: '/admin/log?sale=' + part(id) }, 'View all')), history));

  const then = async () => { await reload(); runAudit(); };
  const turn = (verb, text, message, danger) => () => change({ title: verb[0].toUpperCase() + verb.slice(1) + ' this sale?', text, verb: verb[0].toUpperCase() + verb.slice(1), danger, run: () => post(at + '/' + verb), message, then });
  const openNow = () => change({ title: 'Open this sale now?', text: 'Buyers can buy immediately instead of at the scheduled time.', verb: 'Open now', run: () => post(at + '/open'), message: 'Sale opened.', then });
  const restockKeys = {}; // by the number of units, kept until the server confirms, so that a repetition in another dialog adds no units twice
  const addUnits = async ({ add }) => {
    const repeated = add in restockKeys;
    const got = await post(at + '/restock', { add: Number(add) }, restockKeys[add] ??= newKey());
    if (got.ok) delete restockKeys[add];
    return { ...got, message: repeated ? 'Units added once: this repeated an earlier request.' : 'Units added.' };
  };
  const restock = () => change({ title: 'Restock this sale', verb: 'Restock', fields: [{ name: 'add', label: 'Units to add', type: 'number', required: true, min: 1, max: 1_000_000_000 }], run: addUnits, then });

  const describe = async () => {
    if (!await reload()) return; // the dialog replaces the picture and the description, so it begins with the newest ones
    const begun = current;
    change({ title: 'Picture and description', text: 'The buyer’s page shows them within seconds.', verb: 'Save', fields: pageFields(begun), run: async (v) => {
      await reload();
      const shows = (at) => (current.picture || '') === (at.picture || '') && (current.description || '') === (at.description || '');
      return shows(begun) || shows(v) /* the response was lost */ ? post(at + '/describe', pageValues(v)) : { ok: false, problem: 'They were changed in another window. Copy your text, press Back and begin again.' };
    }, message: 'Saved.', then: reload });
  };

  const reload = reloader(() => get(at), state, (s) => {
    if (JSON.stringify(s) === JSON.stringify(current) && !state.querySelector('.problem')) return;
    current = s;
    fill(title, userText(s.title));
    document.title = withoutBidi(s.title).slice(0, 60) + ' · sluice admin';
    fill(state, badge(s.state), s.paused_by ? h('span', { class: 'soft' }, 'by ', userText(s.paused_by)) : '', !s.applied && !s.archive && h('span', { class: 'soft' }, s.left === null ? 'Redis does not respond, or does not have this sale yet; see sluice shard list.' : 'The last change is not applied to Redis yet.'));
    fill(facts, fact('Id', s.id), fact('Left', h('b', { id: 'left' }, count(s.left)), ' of ', h('span', { id: 'stock' }, count(s.stock)), ' ', soldBar(s)), fact('Stored orders', count(s.sold)), fact('Accepted orders', count(s.accepted)), fact('Price', price(s.price)),
      fact('Limit per buyer', count(s.per_buyer)), fact('Opens', longStamp(s.opens_at)), fact('Closes', s.closes_at ? longStamp(s.closes_at) : 'never'), fact('Payment deadline', s.hold === '0s' ? 'none' : s.hold),
      fact('Queue drains in', span(s.drain_seconds === undefined ? null : s.drain_seconds)), s.spread > 1 && fact('Segments', count(s.spread)),
      s.archive && fact('Archive', s.archive.ended_at ? longStamp(s.archive.ended_at) : 'in progress', ': ' + counted(s.archive.orders, 'order') + ' in ', userText(s.archive.files.join(', ') || 'no file')),
      (s.segments || []).map((g) => fact('Segment ' + count(g.segment) + ', shard ' + count(g.shard), count(g.left) + ' left', g.out > 0 ? ', ' + count(g.out) + ' in transfer' : '', ', ' + count(g.accepted) + ' accepted')));
    const closed = s.switch === 'closed', describing = button('Picture and description', describe);
    fill(acts, [
      s.switch === 'paused' ? button('Resume', turn('resume', 'Buyers can buy again immediately.', 'Sale resumed.'), 'main') : button('Pause', turn('pause', 'Buyers cannot buy until you resume the sale. Accepted orders are processed.', 'Sale paused.')),
      s.state === 'scheduled' && button('Open now', openNow, 'main'), button('Restock', restock), describing, button('Close', turn('close', 'This is permanent: a closed sale cannot be reopened.', 'Sale closed.', true), 'danger'),
    ].filter(Boolean).map((b) => { b.disabled = closed && (b !== describing || Boolean(s.archive)); return b; }));
  });
  const runAudit = reloader(() => get(at + '/audit'), audit, (a) => fill(audit, auditView(a)));
  const loadHistory = logOf({ sale: id, limit: 20 }, history);
  // An audit copies and reads the queue and the dead letters of the shard, so it runs automatically only while there are few of them.
  const few = 100_000;
  let first = true;
  live.watch((samples) => {
    const last = samples[samples.length - 1];
    if (!first || !last) return;
    first = false;
    const q = last.queue, n = q ? q.ready + q.delayed + q.leased + q.dead : 0;
    if (n <= few) runAudit();
    else fill(audit, h('p', { class: 'soft' }, 'Not audited automatically: an audit would read all ' + count(n) + ' queued and dead orders. The background audit checks this sale regularly.'));
  });
  pollVisible(reload);
  loadHistory();
  live.onLog(() => { reload(); loadHistory(); });
}
