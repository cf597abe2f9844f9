// The overview: the purchase funnel and the queue.
const names = {
  unauthorized: 'no token', malformed: 'malformed', sold_out: 'sold out', scheduled: 'not open yet', paused: 'paused', closed: 'closed', rate_limited: 'user limit', bad_request: 'bad request',
  unavailable: 'unavailable', queue_full: 'queue full', already_bought: 'already bought', not_open: 'not open yet', sale_paused: 'paused', sale_closed: 'closed', key_reused: 'key reused', unknown_sale: 'no such sale',
};

// funnelOf turns counts into the steps of the funnel, with the reasons for the losses of each step.
function funnelOf(counts) {
  const edge = [], limited = [], refused = [];
  let purchases = 0, accepted = 0, replayed = 0;
  for (const [key, n] of Object.entries(counts)) {
    const [kind, name, verdict] = key.split(':');
    if (kind === 'rule' && (verdict === 'deny' || verdict === 'error')) edge.push(['rule ' + name + (verdict === 'error' ? ' (error)' : ''), n]);
    else if (kind === 'edge') edge.push([names[name] || name, n]);
    else if (kind === 'repeated') edge.push([(names[name] || name) + ' (cached)', n]);
    else if (kind === 'purchase') {
      purchases += n;
      if (name === 'accepted') accepted += n;
      else if (name === 'replayed') replayed += n;
      else (['rate_limited', 'unauthorized', 'bad_request', 'unavailable', 'queue_full'].includes(name) ? limited : refused).push([names[name] || name.replaceAll('_', ' '), n]);
    }
  }
  const sum = (list) => list.reduce((all, [, n]) => all + n, 0);
  const requests = sum(edge) + purchases, passed = purchases - sum(limited);
  return [
    { name: 'Requests', n: requests, lost: [] },
    { name: 'Passed the edge', n: purchases, lost: edge },
    { name: 'Passed the backend’s limits', n: passed, lost: limited },
    { name: 'Accepted', n: accepted, lost: replayed ? [...refused, ['replayed', replayed]] : refused },
    { name: 'Stored in SQL', n: counts.rows || 0, lost: [] },
  ];
}

function funnel() {
  const el = h('ol', { class: 'funnel' });
  const draw = (counts) => {
    const steps = funnelOf(counts), most = Math.max(1, ...steps.map((s) => s.n));
    el.replaceChildren(...steps.map((s) => {
      const bar = h('span', { class: 'bar' });
      bar.style.setProperty('--share', String(s.n / most));
      return h('li', null, h('span', { class: 'step' }, s.name), h('b', null, count(s.n)), h('span', { class: 'track' }, bar),
        h('span', { class: 'lost' }, s.lost.filter(([, n]) => n).sort((a, b) => b[1] - a[1]).map(([why, n]) => h('span', { class: 'chip' }, '−' + short(n) + ' ', userText(why)))));
    }));
  };
  return { el, draw };
}

const tile = (name) => {
  const n = h('b'), more = h('small', { class: 'soft' });
  return { el: h('div', { class: 'tile' }, h('span', null, name), n, more), set(text, note, bad) { n.textContent = text; more.textContent = note || ''; n.classList.toggle('bad', Boolean(bad)); } };
};

const perSecond = (pick) => (s) => Object.entries(s.counts).reduce((all, [key, n]) => all + (pick(key) ? n : 0), 0);

function overview() {
  const flow = funnel(), chosen = minutes(() => redraw());
  const tiles = { queue: tile('Queued orders'), oldest: tile('Oldest order'), drain: tile('Time to drain'), dead: tile('Dead letters'), latency: tile('Purchase p99'), sold: tile('Sold') };
  const charts = [
    chart('Purchases per second', [{ name: 'received', of: perSecond((k) => k.startsWith('purchase:')) }, { name: 'accepted', of: perSecond((k) => k === 'purchase:accepted') }, { name: 'stored', of: (s) => s.counts.rows || 0 }], short),
    chart('Refused at the edge per second', [{ name: 'by rule', of: perSecond((k) => k.startsWith('rule:') && k.endsWith(':deny')) }, { name: 'cached', of: perSecond((k) => k.startsWith('repeated:')) }], short),
    chart('Purchase latency', [{ name: 'p50', of: (s) => s.latency && s.latency.p50 }, { name: 'p95', of: (s) => s.latency && s.latency.p95 }, { name: 'p99', of: (s) => s.latency && s.latency.p99 }], millis),
    chart('Queue', [{ name: 'ready', of: (s) => s.queue && s.queue.ready }, { name: 'leased', of: (s) => s.queue && s.queue.leased }, { name: 'delayed', of: (s) => s.queue && s.queue.delayed }], short),
    chart('Age of the oldest order', [{ name: 'age', of: (s) => s.queue && s.queue.oldest_age_seconds }], span),
    chart('Leases', [{ name: 'batches', of: (s) => s.queue && s.queue.leases }], short),
    chart('Time to drain', [{ name: 'until empty', of: (s) => s.queue && s.queue.drain_seconds }], span),
  ];
  const missing = h('p', { class: 'problem', role: 'status' }), actions = h('div'), since = h('small', { class: 'soft' });
  page(h('div', { class: 'row' }, h('h1', null, 'Overview'), chosen.el), h('section', { class: 'tiles', 'aria-label': 'Now' }, Object.values(tiles).map((t) => t.el)), missing,
    h('section', { class: 'card' }, h('h2', null, 'Purchase funnel'), flow.el, since), h('div', { class: 'charts' }, charts.map((c) => c.el)),
    h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'Recent actions'), h('a', { href: '/admin/log' }, 'View all')), actions));

  function redraw(all, body) {
    const samples = live.recent(chosen.seconds()), last = samples[samples.length - 1];
    flow.draw(sums(samples));
    for (const c of charts) c.draw(samples, chosen.seconds());
    if (body) since.textContent = 'Counting since ' + inZone(new Date(body.started_at), { ...dateParts, ...clockParts }) + '. Sources: ' + body.sources.map((s) => s.name + (s.error ? ' (no response)' : '')).join(', ') + '.';
    if (!last) return;
    const q = last.queue, b = last.totals, l = last.latency;
    put(missing, unavailable(q?.unavailable_shards, 'Their orders are not counted'));
    tiles.queue.set(q ? short(q.ready + q.delayed + q.leased) : 'unknown', q ? short(q.drained_per_second) + ' per second drained' : 'Redis is not responding', !q);
    tiles.oldest.set(q ? span(q.oldest_age_seconds) : '–', q && q.leases ? counted(q.leases, 'lease') : '');
    tiles.drain.set(q && q.drain_seconds !== null ? span(q.drain_seconds) : '–', q && q.drain_seconds === null ? 'not draining, or unknown' : '');
    tiles.dead.set(q ? short(q.dead) : '–', q && q.dead ? 'need a decision' : '', q && q.dead > 0);
    tiles.latency.set(l ? millis(l.p99) : '–', l ? 'p50 ' + millis(l.p50) : 'no purchases');
    tiles.sold.set(b ? short(b.sold) : 'unknown', b ? 'of ' + short(b.stock) + ' in ' + counted(b.sales, 'sale') : 'SQL is not responding', !b);
  }
  const loadActions = logOf({ limit: 6 }, actions);
  live.watch(redraw);
  live.onLog(loadActions);
  loadActions();
}
