// One sale: its ledger, what may be done with it, and what was done.
function ledger(a) {
  const places = [['left', 'Left'], ['ready', 'Ready'], ['delayed', 'Delayed'], ['leased', 'Leased'], ['ordered', 'Ordered'], ['dead', 'Dead']];
  const total = places.reduce((all, [key]) => all + a[key], 0);
  const bar = h('div', { class: 'stack', role: 'img', 'aria-label': places.map(([key, name]) => name + ' ' + count(a[key])).join(', ') }, places.map(([key]) => {
    const piece = h('span', { class: 'piece ' + key });
    piece.style.setProperty('--share', String(a.stock ? a[key] / a.stock : 0));
    return piece;
  }));
  return h('div', { class: 'ledger' },
    h('p', { class: a.balanced ? 'good' : 'problem' }, a.balanced ? '✓ Balanced: every unit is in one place.' : '✗ Not balanced: ' + count(total) + ' units are somewhere, and the stock is ' + count(a.stock) + '.'), bar,
    h('dl', { class: 'sum' }, h('div', null, h('dt', null, 'Stock'), h('dd', { id: 'ledger-stock' }, count(a.stock))), places.map(([key, name], i) => h('div', null, h('dt', null, h('i', { class: 'key ' + key }), (i ? '+ ' : '= ') + name), h('dd', { id: 'ledger-' + key }, count(a[key]))))),
    (a.unbacked > 0 || a.returning > 0) && h('p', { class: 'soft' }, a.returning > 0 ? count(a.returning) + ' cancelled units are on their way back. ' : '', a.unbacked > 0 ? count(a.unbacked) + ' dead letters hold no unit.' : ''));
}

function saleView(id) {
  const at = '/sales/' + part(id);
  const title = h('h1', null, own(id)), facts = h('dl', { class: 'facts' }), acts = h('div', { class: 'row acts' }), books = h('div', { 'aria-live': 'polite' }, h('p', { class: 'soft' }, 'Counting…')), doings = h('div'), state = h('p', { class: 'row' });
  let said = ''; // of the sale, when it was drawn last
  page(h('p', null, h('a', { href: '/admin/sales' }, '← Sales')), title, state, acts, h('div', { class: 'two' }, h('section', { class: 'card' }, h('h2', null, 'The sale'), facts, h('p', null, h('a', { href: '/admin/dead?sale=' + part(id) }, 'Dead letters of this sale'))),
    h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'Ledger'), button('Count', () => counted())), books)), h('section', { class: 'card' }, h('h2', null, 'What was done'), doings));

  const did = async (what, got) => {
    if (!got) return;
    toast(what);
    await again();
    counted();
  };
  const turn = (verb, text, said, danger) => async () => did(said, await ask({ title: verb[0].toUpperCase() + verb.slice(1) + ' this sale?', text, verb: verb[0].toUpperCase() + verb.slice(1), danger, run: () => post(at + '/' + verb) }));
  const openNow = async () => did('The sale is open.', await ask({ title: 'Open this sale now?', text: 'Buyers can buy at once, and not at the time that it was to open.', verb: 'Open now', run: () => post(at + '/open') }));
  const restock = async () => {
    const key = newKey(); // whatever goes wrong with the answer, the units come once
    did('Restocked.', await ask({ title: 'Restock this sale', verb: 'Restock', fields: [{ name: 'add', label: 'Units to add', type: 'number', required: true, min: 1, max: 1_000_000_000 }], run: (v) => post(at + '/restock', { add: Number(v.add) }, key) }));
  };

  async function again() {
    const got = await get(at);
    if (!got.ok) {
      fill(state, problemLine(got.status === 404 ? 'There is no such sale.' : got.problem));
      return;
    }
    const s = got.body, text = JSON.stringify(s);
    if (text === said) return;
    said = text;
    fill(title, own(s.title));
    document.title = plain(s.title).slice(0, 60) + ' · sluice desk';
    fill(state, badge(s.state), s.paused_by ? h('span', { class: 'soft' }, 'by ', own(s.paused_by)) : '', !s.applied && h('span', { class: 'soft' }, 'The last change is on its way to Redis.'));
    const fact = (name, ...value) => h('div', null, h('dt', null, name), h('dd', null, value));
    fill(facts, fact('Id', s.id), fact('Left', h('b', { id: 'left' }, count(s.left)), ' of ', h('span', { id: 'stock' }, count(s.stock)), ' ', soldBar(s)), fact('Rows', count(s.sold)), fact('Ever accepted', count(s.accepted)), fact('Price', price(s.price)),
      fact('For one buyer', count(s.per_buyer)), fact('Opens', stamp(s.opens_at)), fact('Closes', s.closes_at ? stamp(s.closes_at) : 'never'), fact('Unpaid orders are kept', s.hold === '0s' ? 'for ever' : s.hold),
      fact('In SQL within', span(s.drain_seconds === undefined ? null : s.drain_seconds)));
    const over = s.switch === 'closed';
    fill(acts, [
      s.switch === 'paused' ? button('Resume', turn('resume', 'Buyers can buy again at once.', 'The sale goes on.'), 'main') : button('Pause', turn('pause', 'Nobody can buy until you resume it. What is accepted goes its way.', 'The sale is paused.')),
      s.state === 'scheduled' && button('Open now', openNow, 'main'), button('Restock', restock), button('Close', turn('close', 'It ends for good: a closed sale cannot be opened again.', 'The sale is closed.', true), 'danger'),
    ].filter(Boolean).map((b) => { b.disabled = over; return b; }));
  }
  async function counted() {
    const got = await get(at + '/audit');
    fill(books, got.ok ? ledger(got.body) : problemLine(got.status === 404 ? 'There is no such sale.' : got.problem));
  }
  async function logged() {
    const log = await get('/log', { target: id, limit: 20 });
    fill(doings, log.ok ? logTable(log.body.log) : problemLine(log.problem));
  }
  // To count is to copy and read all that waits and all dead letters of the shard, so it is done unasked only while they are few.
  const few = 100_000;
  let first = true;
  live.watch((samples) => {
    const last = samples[samples.length - 1];
    if (!first || !last) return;
    first = false;
    const q = last.queue, n = q ? q.ready + q.delayed + q.leased + q.dead : 0;
    if (n <= few) counted();
    else fill(books, h('p', { class: 'soft' }, 'Not counted: it would look at all ' + count(n) + ' orders that wait or are dead, and hold up Redis for a moment. The background audit does so by turns.'));
  });
  every(again);
  logged();
  live.onLog(() => { again(); logged(); });
}
