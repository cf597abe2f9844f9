// The verdict of a run, as text and as JSON.

import { outcomes } from './answer.js';
import { states } from './measure.js';

// thirds are the parts of a long run that the verdict compares. A script tags its purchases with one of them.
export const thirds = ['first', 'middle', 'last'];

const values = (data, name) => data.metrics[name]?.values || {};
const ms = (v) => (v === undefined ? '-' : v < 10 ? v.toFixed(1) : v.toFixed(0));
const pad = (cells) => cells.map((cell, i) => (i === 0 ? String(cell).padEnd(16) : String(cell).padStart(10))).join('');

function failedThresholds(data) {
  const found = [];
  for (const [metric, { thresholds = {} }] of Object.entries(data.metrics)) {
    for (const [expression, { ok }] of Object.entries(thresholds)) if (!ok) found.push(`${metric} ${expression}`);
  }
  return found.sort();
}

function byOutcome(data) {
  return outcomes.map((outcome) => {
    const t = values(data, `purchase_duration{outcome:${outcome}}`);
    const n = values(data, `purchases{outcome:${outcome}}`).count || 0;
    return { outcome, count: n, ...(n > 0 && { p50: t.med, p95: t['p(95)'], p99: t['p(99)'], max: t.max }) };
  });
}

// report assembles the verdict. A run without a final audit has failed.
export function report(script, data) {
  const failures = failedThresholds(data);
  const units = Object.fromEntries(states.map((name) => [name, values(data, `audit_${name}`).value]));
  const audited = units.stock !== undefined;
  if (!audited) failures.unshift('the final audit is missing; see the errors above');
  return {
    script,
    verdict: failures.length === 0 ? 'PASS' : 'FAIL',
    failures,
    sale: data.setup_data?.sale?.id,
    seconds: data.state.testRunDurationMs / 1000,
    purchases: values(data, 'purchases').count || 0,
    dropped: values(data, 'dropped_iterations').count || 0,
    outcomes: byOutcome(data),
    thirds: thirds.map((third) => ({ third, ...values(data, `purchase_duration{third:${third}}`) })).filter((t) => t.count > 0),
    orderRow: values(data, 'order_row_duration'),
    backlog: values(data, 'backlog'),
    violations: values(data, 'violations').count || 0,
    interruptions: values(data, 'interruptions').count || 0,
    lostOrders: audited ? Math.max(0, values(data, 'lost_orders').count || 0) : undefined,
    unreportedOrders: audited ? Math.max(0, -(values(data, 'lost_orders').count || 0)) : undefined,
    units: audited ? units : undefined,
  };
}

function hints(r) {
  const share = (outcome) => (r.purchases ? r.outcomes.find((o) => o.outcome === outcome).count / r.purchases : 0);
  const found = [];
  if (r.interruptions > 0) found.push('The run ended early, or before its last buyers had finished: the verdict covers only the part that ran.');
  if (share('limited') > 0.5) {
    found.push('Most responses were 429. To give every buyer an address of its own, start the edge with loadtest/policy.lua.');
  }
  if (r.units?.left > 0 && share('accepted') > 0 && share('sold_out') === 0) {
    found.push(`The sale did not sell out: ${r.units.left} of ${r.units.stock} units are left, and no refusal was tested. Set a smaller STOCK.`);
  }
  if (r.dropped > 0) found.push(`${r.dropped} iterations were not started in time: this machine is too slow for the rate, or MAX_VUS is too small.`);
  if (r.unreportedOrders > 0) found.push(`${r.unreportedOrders} rows belong to buyers that did not receive the 202 (lost responses, or other traffic on this sale).`);
  return found;
}

export function text(r) {
  const lines = [`${r.verdict}  ${r.script}  sale ${r.sale || '-'}  ${r.purchases} purchases in ${r.seconds.toFixed(1)} s`, ''];
  lines.push(pad(['outcome', 'count', 'p50 ms', 'p95 ms', 'p99 ms', 'max ms']));
  for (const o of r.outcomes) lines.push(pad([o.outcome, o.count, ms(o.p50), ms(o.p95), ms(o.p99), ms(o.max)]));
  lines.push('');
  for (const t of r.thirds) lines.push(`${`${t.third} third`.padEnd(18)}p50 ${ms(t.med)} ms, p95 ${ms(t['p(95)'])} ms, p99 ${ms(t['p(99)'])} ms (${t.count} responses)`);
  if (r.orderRow.count > 0) lines.push(`accepted to row   p50 ${ms(r.orderRow.med)} ms, p95 ${ms(r.orderRow['p(95)'])} ms, max ${ms(r.orderRow.max)} ms (${r.orderRow.count} followed)`);
  if (r.backlog.count > 0) lines.push(`queued at audits  p50 ${r.backlog.med}, max ${r.backlog.max} orders`);
  if (r.units) {
    const { stock, left, ready, delayed, leased, ordered, dead } = r.units;
    lines.push(`units             stock ${stock} = left ${left} + ready ${ready} + delayed ${delayed} + leased ${leased} + ordered ${ordered} + dead ${dead}`);
    lines.push(`guarantees        ${r.lostOrders} orders lost, ${r.violations} violations`);
  }
  for (const failure of r.failures) lines.push(`failed            ${failure}`);
  for (const hint of hints(r)) lines.push(`note              ${hint}`);
  return `${lines.join('\n')}\n`;
}

// summary is k6's handleSummary for the given script.
export function summary(script, config, data) {
  const r = report(script, data);
  return {
    stdout: `\n${text(r)}\n`,
    [`${config.out}/${script}.verdict.txt`]: text(r),
    [`${config.out}/${script}.verdict.json`]: `${JSON.stringify(r, null, 2)}\n`,
  };
}
