// The metrics of a run. purchases and purchase_duration have the outcome as a tag, so that thresholds and dashboards can distinguish
// fast refusals from slow purchases.

import { Counter, Gauge, Rate, Trend } from 'k6/metrics';

const purchases = new Counter('purchases');
const purchaseDuration = new Trend('purchase_duration', true);
const failedRate = new Rate('purchase_failed');
const orderDuration = new Trend('order_row_duration', true);
const violations = new Counter('violations');
const lostOrders = new Counter('lost_orders');
const unexplainedRows = new Counter('unexplained_rows');
const undersold = new Counter('undersold');
const balanced = new Rate('audit_balanced');
const backlog = new Trend('backlog');
const adminFailures = new Counter('admin_failures');
const interruptions = new Counter('interruptions');

// states are the numbers of the unit count whose sum, without the stock, is the stock.
export const states = ['stock', 'left', 'ready', 'delayed', 'leased', 'ordered', 'dead'];

const gauges = states.map((name) => [name, new Gauge(`audit_${name}`)]);

const shown = 3; // messages per kind of failure and virtual user; the counters include all of them
const seen = {};

function report(kind, message) {
  seen[kind] = (seen[kind] || 0) + 1;
  if (seen[kind] <= shown) console.error(message);
}

// purchase records one response; milliseconds is the time from the first byte sent to the last byte received.
export function purchase(answer, milliseconds, tags) {
  const all = { ...tags, outcome: answer.outcome };
  purchases.add(1, all);
  purchaseDuration.add(milliseconds, all);
  failedRate.add(answer.outcome === 'failed');
  if (answer.outcome === 'sold_out') undersold.add(1);
  if (answer.outcome === 'failed') {
    unexplainedRows.add(-1); // the order may have been accepted and only the response lost
    report(answer.why, `failed: ${answer.why}`);
  }
}

// ordered records an order id that a buyer received for the first time. Together with rows it yields lost_orders and unexplained_rows.
export function ordered() {
  lostOrders.add(1);
  unexplainedRows.add(-1);
}

// rows records the number of rows that the run created.
export function rows(n) {
  lostOrders.add(-n);
  unexplainedRows.add(n);
}

// orderBecameRow records the time from the 202 until the buyer saw the order as a row.
export function orderBecameRow(milliseconds) {
  orderDuration.add(milliseconds);
}

// violation records that a guarantee was violated, which fails the run.
export function violation(guarantee, detail) {
  violations.add(1, { guarantee });
  report(guarantee, `violation of ${guarantee}: ${detail}`);
}

// adminFailed records a call of the admin API that failed.
export function adminFailed() {
  adminFailures.add(1);
}

// interrupted records n interruptions of the run. A visit counts as one until it ends, because k6 ends it without an exception.
export function interrupted(n = 1) {
  interruptions.add(n);
}

// audited records an audit during the sale.
export function audited(audit) {
  balanced.add(audit.balanced === true);
  backlog.add(audit.ready + audit.delayed + audit.leased);
}

// closed records the final audit. Where no more units are left than were returned by orders that were cancelled during the run, every refusal
// as sold out can be correct: the large number makes the counter of these refusals negative, because a teardown cannot read it.
export function closed(audit, returned) {
  if (audit.left <= returned) undersold.add(-1e12);
  for (const [name, gauge] of gauges) gauge.add(audit[name]);
}
