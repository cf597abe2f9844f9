// Checks a policy of the edges, compares it with another, and replays an access log with it. It changes nothing.
const ruleFields = { key: 'key', rate: 'rate', burst: 'burst', match: 'match', mode: 'mode', on_error: 'on error', delay: 'delay', ipv6_prefix: 'IPv6 prefix' };

// ruleChanges compares the rules of two policies by name.
function ruleChanges(before, after) {
  const old = new Map(before.map((r) => [r.name, r])), changes = [];
  for (const r of after) {
    const was = old.get(r.name);
    old.delete(r.name);
    if (!was) { changes.push([r.name, 'added', r.rate + ', burst ' + r.burst]); continue; }
    const differing = Object.keys(ruleFields).filter((f) => was[f] !== r[f]);
    if (differing.length) changes.push([r.name, 'changed', differing.map((f) => ruleFields[f] + ' ' + (was[f] || 'none') + ' → ' + (r[f] || 'none')).join(', ')]);
  }
  for (const r of old.values()) changes.push([r.name, 'removed', r.rate + ', burst ' + r.burst]);
  if (!changes.length && before.some((r, i) => r.name !== after[i].name)) changes.push(['', 'order', 'The rules are in another order.']);
  return changes;
}

const percent = (share) => (share * 100).toFixed(share && share < 0.1 ? 2 : 1) + ' %';

// replayTable shows the decisions of each rule of a policy.
const replayTable = (name, p) => [h('h3', null, name + ': ' + count(p.refused) + ' rejected, ' + percent(p.refused_share)), tableOf(name, ['Rule', 'Mode', ...['Requests', 'Passed', 'Rejected', 'Would reject', 'Delayed'].map(number)],
  h('tbody', null, p.rules.map((r) => h('tr', null, h('td', null, userText(r.name)), h('td', null, r.mode), ...[r.covered, r.passed, r.refused, r.shadow_refused, r.delayed].map((n) => h('td', { class: 'n' }, count(n)))))))];

function replayResult(r) {
  const d = r.difference, top = [['Rejected by the new policy only', d?.only_new_top], ['Rejected by the current policy only', d?.only_old_top], ['Most rejected', r.policy.top]].filter(([, keys]) => keys?.length);
  return [
    h('p', null, counted(r.requests, 'request'), r.from && [' from ', longStamp(r.from), ' to ', longStamp(r.to)], r.bad_lines > 0 && '; ' + counted(r.bad_lines, 'line') + ' cannot be read'),
    d && h('p', { class: d.only_new ? 'problem' : 'good' }, counted(d.only_new, 'request is', 'requests are') + ' rejected by the new policy only, ' + count(d.only_old) + ' by the current one only, ' + count(d.both_refuse) + ' by both.'),
    replayTable('New policy', r.policy), r.against && replayTable('Current policy', r.against),
    top.map(([name, keys]) => [h('h3', null, name), tableOf(name, ['Key', number('Requests'), number('Rejected'), 'Rule'], h('tbody', null, keys.map((k) => h('tr', null, h('td', { class: 'wide' }, k.kind + ' ', userText(k.key)), h('td', { class: 'n' }, count(k.requests)), h('td', { class: 'n' }, count(k.refused)), h('td', null, userText(k.rule))))))]),
    (r.notes || []).map((note) => h('p', { class: 'soft' }, note)),
  ].flat(3);
}

function policyView() {
  const largest = 64 * 1024 * 1024;
  const changed = () => { fill(findings); fill(result); }; // they are those of the earlier text
  const source = (name, label, help) => {
    const text = h('textarea', { name, rows: 10, spellcheck: 'false', class: 'code', oninput: changed });
    const file = h('input', { type: 'file', accept: '.lua', 'aria-label': label + ' from a file', onchange: async () => { if (file.files[0]) { text.value = await file.files[0].text(); changed(); } } });
    return { text, el: h('section', { class: 'card' }, h('label', { class: 'field' }, h('b', null, label), h('small', { class: 'soft' }, help), text), file) };
  };
  const fresh = source('policy', 'New policy', 'Paste it, or choose a file.'), current = source('against', 'Current policy', 'Optional: shows the changes.');
  const log = h('input', { type: 'file', name: 'log', 'aria-label': 'Access log' });
  const findings = h('div', { 'aria-live': 'polite' }), result = h('div', { 'aria-live': 'polite' });

  const list = (found, cls) => found.length > 0 && h('ul', { class: 'plain ' + cls }, found.map((f) => h('li', null, f.line ? 'Line ' + f.line + ': ' : '', userText(f.detail))));
  const checked = (name, c) => [h('h3', null, name), c.errors.length ? list(c.errors, 'problem') : h('p', { class: 'good' }, '✓ Valid: ' + counted(c.rules.length, 'rule') + '.'), list(c.warnings, 'soft')];

  // check shows the findings, and resolves to true if both policies are valid.
  async function check() {
    const texts = [fresh.text.value, current.text.value].filter((t, i) => t.trim() || !i);
    const got = await Promise.all(texts.map((policy) => post('/policy/check', { policy })));
    const failed = got.find((g) => !g.ok);
    if (failed) { fill(findings, problemLine(failed.problem)); return false; }
    const [a, b] = got.map((g) => g.body), both = b && !a.errors.length && !b.errors.length;
    const changes = both ? ruleChanges(b.rules, a.rules) : [];
    fill(findings, checked('New policy', a), b && checked('Current policy', b), both && [h('h3', null, 'Changes'), changes.length ? tableOf('Changes', ['Rule', 'Change', 'Details'], h('tbody', null, changes.map(([name, what, details]) => h('tr', null, h('td', null, userText(name)), h('td', null, what), h('td', { class: 'wide' }, userText(details)))))) : h('p', { class: 'soft' }, 'No rule changes.')].flat());
    return !a.errors.length && !b?.errors.length;
  }

  async function replay() {
    const file = log.files[0];
    if (!file) { fill(result, problemLine('Choose an access log first.')); return; }
    if (file.size > largest) { fill(result, problemLine('The log is larger than 64 MB. Compress it with gzip, send a part of it, or use sluice policy replay.')); return; }
    start.disabled = true;
    fill(result, h('p', { class: 'soft' }, 'Replaying…'));
    const head = { policy: fresh.text.value, ...(current.text.value.trim() && { against: current.text.value }) };
    const got = await check() ? await api('POST', '/policy/replay', new Blob([JSON.stringify(head) + '\n', file])) : { ok: false, problem: 'Correct the policy first.' };
    fill(result, got.ok ? replayResult(got.body) : problemLine(got.problem));
    start.disabled = false;
  }
  const start = button('Replay', replay, 'main');

  page(h('p', null, h('a', { href: '/admin/edge' }, '← Edge')), h('h1', null, 'Try a policy'), h('p', { class: 'soft' }, 'This page does not change an edge. To apply a policy, replace the policy file of the edge.'), h('div', { class: 'two' }, fresh.el, current.el),
    h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'Check'), button('Check', check, 'main')), findings),
    h('section', { class: 'card' }, h('div', { class: 'row' }, h('h2', null, 'Replay'), log, start), h('p', { class: 'soft' }, 'Which requests of an access log would each rule reject? The log of an edge or of nginx, as text or gzip, up to 64 MB.'), result));
}
