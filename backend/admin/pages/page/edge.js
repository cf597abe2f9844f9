// The active policy of the edges, with the counts of each rule.
function edgeView() {
  const chosen = minutes(() => redraw()), none = h('div'), rows = h('tbody'), where = h('ul', { class: 'plain' });
  const rules = tableOf('Rules', ['Rule', 'Key', 'Rate', 'Burst', 'Match', 'Mode', 'On error', ...['Allowed', 'Denied', 'Would deny', 'Errors'].map(number)], rows);
  let body = null;
  page(h('div', { class: 'row' }, h('h1', null, 'Edge'), h('a', { href: '/admin/edge/policy' }, 'Try a policy'), chosen.el), h('section', { class: 'card' }, h('h2', null, 'Active policy'), none, rules, h('p', { class: 'soft' }, 'A rule in shadow mode denies nothing; “Would deny” shows its effect. Counts cover the time span above.')), h('section', { class: 'card' }, h('h2', null, 'Sources'), where));
  function redraw(_, fresh) {
    body = fresh || body;
    if (!body) return;
    const counts = sums(live.recent(chosen.seconds())), known = new Map();
    for (const s of body.sources) for (const r of s.rules) {
      const same = [r.name, r.rate, r.burst, r.mode, r.scope].join(' '); // the same rule on several edges
      known.set(same, { ...r, edges: [...(known.get(same)?.edges || []), s.name] });
    }
    const edges = body.sources.filter((s) => s.edge).length;
    const named = new Set([...known.values()].map((r) => r.name));
    for (const key of Object.keys(counts)) {
      const [kind, name] = key.split(':');
      if (kind === 'rule' && !named.has(name)) { named.add(name); known.set(name, { name, key: '', rate: '', burst: '', match: '', mode: '', on_error: '', edges: [] }); }
    }
    const n = (r, verdict) => counts['rule:' + r.name + ':' + verdict] || 0;
    fill(none, !edges && h('p', { class: 'problem' }, 'No edge metrics. Add the /metrics URL of each edge with --edge-metrics.'));
    rules.hidden = !known.size;
    fill(rows, [...known.values()].map((r) => h('tr', null, h('td', null, userText(r.name), r.edges.length > 0 && r.edges.length < edges && h('small', { class: 'soft' }, 'not on all edges')), h('td', null, r.key), h('td', null, r.rate, r.scope === 'fleet' && h('small', { class: 'soft' }, 'all edges together')), h('td', null, r.burst), h('td', null, r.match || (r.rate ? 'all requests' : '')), h('td', null, r.mode && h('span', { class: 'badge', 'data-state': r.mode === 'shadow' ? 'scheduled' : 'open' }, r.mode)), h('td', null, r.on_error),
        h('td', { class: 'n' }, count(n(r, 'allow'))), h('td', { class: 'n' }, count(n(r, 'deny'))), h('td', { class: 'n' }, r.mode === 'shadow' || n(r, 'shadow') ? count(n(r, 'shadow')) : '–'), h('td', { class: 'n' + (n(r, 'error') ? ' bad' : '') }, count(n(r, 'error'))))));
    fill(where, body.sources.map((s) => h('li', null, h('span', { class: 'badge', 'data-state': s.error ? 'sold_out' : 'open' }, s.error ? 'no response' : s.edge ? 'edge' : 'backend'), ' ', userText(s.name), ' ', s.error && h('span', { class: 'soft' }, userText(s.error)))));
  }
  live.watch(redraw);
}
