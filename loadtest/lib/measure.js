// The metrics of a run. purchases and purchase_duration carry the outcome as a tag, so that a threshold and a dashboard can tell a fast
// refusal from a slow sale.

import { Counter, Gauge, Rate, Trend } from 'k6/metrics';

const purchases = new Counter('purchases');
const purchaseDuration = new Trend('purchase_duration', true);
const failedRate = new Rate('purchase_failed');
const orderDuration = new Trend('order_row_duration', true);
const brokenPromises = new Counter('broken_promises');
const lostOrders = new Counter('lost_orders');
const unexplainedRows = new Counter('unexplained_rows');
const balanced = new Rate('audit_balanced');
const backlog = new Trend('backlog');
const books = ['stock', 'left', 'ready', 'delayed', 'leased', 'ordered', 'dead'].map((name) => [name, new Gauge(`audit_${name}`)]);

const shown = 3; // of each kind of failure, per virtual user; the counters have them all
const seen = {};

function tell(kind, message) {
  seen[kind] = (seen[kind] || 0) + 1;
  if (seen[kind] <= shown) console.error(message);
}

// purchase records one answer; milliseconds is the time from the first byte sent to the last one read.
export function purchase(answer, milliseconds, tags) {
  const all = { ...tags, outcome: answer.outcome };
  purchases.add(1, all);
  purchaseDuration.add(milliseconds, all);
  failedRate.add(answer.outcome === 'failed');
  if (answer.outcome === 'failed') {
    unexplainedRows.add(-1); // it may have been accepted all the same, and the answer lost
    tell(answer.why, `failed: ${answer.why}`);
  }
}

// ordered records an order id that a buyer was told for the first time. With rows, it closes the account: see the thresholds.
export function ordered() {
  lostOrders.add(1);
  unexplainedRows.add(-1);
}

// rows records how many rows the whole run made.
export function rows(n) {
  lostOrders.add(-n);
  unexplainedRows.add(n);
}

// orderBecameRow records how long an accepted order took to become a row, as its buyer saw it.
export function orderBecameRow(milliseconds) {
  orderDuration.add(milliseconds);
}

// broken records that a promise of sluice was broken; a run with one of these has failed.
export function broken(promise, detail) {
  brokenPromises.add(1, { promise });
  tell(promise, `broken promise, ${promise}: ${detail}`);
}

// audited records one audit taken while the sale goes on.
export function audited(audit) {
  balanced.add(audit.balanced === true);
  backlog.add(audit.ready + audit.delayed + audit.leased);
}

// closed records the last audit, for the summary.
export function closed(audit) {
  for (const [name, gauge] of books) gauge.add(audit[name]);
}
