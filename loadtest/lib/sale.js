// Setup and teardown of a run: creates the sale, verifies the unit count at the end, and closes the sale.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { audit, cancelled, closeSale, createSale } from './admin.js';
import * as measure from './measure.js';

// prepare creates the sale (or uses SALE) and returns the data of every virtual user: {run, sale, created, before, began}.
export function prepare(config) {
  const run = `load-${Date.now().toString(36)}`;
  const created = config.sale === '';
  const id = created ? createSale(config, run) : config.sale;
  try {
    const res = http.get(`${config.target}/v1/sales/${id}`);
    if (res.status !== 200) {
      const missing = !created && res.status === 404;
      const remedy = missing ? 'unset SALE, or set it to the id of a sale' : 'check that TARGET and ADMIN belong to the same deployment';
      throw new Error(`GET ${config.target}/v1/sales/${id}: ${res.status || res.error}; ${remedy}`);
    }
    return { run, sale: res.json(), created, before: totals(config, id), began: Date.now() };
  } catch (err) {
    if (created) closeAfterError(config, id);
    throw err;
  }
}

// closeAfterError closes a sale before an error is thrown, and does not throw an error itself.
function closeAfterError(config, id) {
  try {
    closeSale(config, id);
  } catch (err) {
    console.error(`the sale of this run may be open: ${err.message}`);
  }
}

const waiting = (count) => count.ready + count.delayed + count.leased;
const accounted = (count) => count.left + waiting(count) + count.ordered + count.dead;

// totals returns the unit count of a sale, waits for its queue if drain is set, and adds the cancelled orders and all rows. It counts again if
// orders were cancelled meanwhile.
function totals(config, saleId, drain = false) {
  const deadline = Date.now() + config.settle * 1000;
  for (;;) {
    const before = cancelled(config, saleId);
    const count = drain ? idle(config, saleId, deadline) : audit(config, saleId);
    const now = cancelled(config, saleId);
    if (before === now || Date.now() > deadline) return { ...count, cancelled: now, rows: count.ordered - count.returning + now };
  }
}

// idle audits until no order of the sale is queued or the deadline has passed, and returns the last audit.
function idle(config, saleId, deadline) {
  for (;;) {
    const count = audit(config, saleId);
    if (waiting(count) === 0 || Date.now() > deadline) return count;
    sleep(0.5);
  }
}

// breaches returns a message for each inconsistency of the unit count.
export function breaches(count) {
  const found = [];
  const accepted = count.stock - count.left;
  if (!count.balanced) found.push('the audit is not balanced');
  if (accounted(count) !== count.stock) found.push(`left + ready + delayed + leased + ordered + dead is ${accounted(count)}, the stock is ${count.stock}`);
  if (count.ordered > count.stock || count.left < 0) found.push(`oversold: ${count.ordered} rows and ${count.left} left of a stock of ${count.stock}`);
  if (waiting(count) > 0) found.push(`orders still queued: ${waiting(count)}; SETTLE may be too short`);
  if (count.dead > 0) found.push(`${count.dead} orders are dead letters`);
  if (accepted !== count.ordered) found.push(`${accepted} units were sold and ${count.ordered} are rows`);
  return found;
}

// settle waits until the queue is empty, compares the rows with the orders that buyers received, fails the run if the count is wrong, and
// closes the sale that prepare created. After a wrong count, k6 exits with 110 (marked as failed), or with 99 or 107 if a threshold or an error came first.
// A run that ends before the `planned` seconds of its scenarios was interrupted.
export function settle(config, planned, { sale, created, before, began }) {
  if (Date.now() - began < planned * 1000) measure.interrupted();
  let count;
  try {
    count = totals(config, sale.id, true);
  } catch (err) {
    if (created) closeAfterError(config, sale.id);
    throw err;
  }
  measure.closed(count, count.cancelled - before.cancelled);
  measure.rows(count.rows - before.rows);
  const found = breaches(count);
  for (const breach of found) measure.violation('units-balance', breach);
  if (found.length > 0) exec.test.fail(`sale ${sale.id}: ${found.join('; ')}`);
  if (created) closeSale(config, sale.id);
}

// watch audits during the sale: the units must balance at every instant, not only at the end.
export function watch(config, { sale }) {
  const count = audit(config, sale.id);
  measure.audited(count);
  if (!count.balanced || accounted(count) !== count.stock) measure.violation('units-balance', `during the sale: ${JSON.stringify(count)}`);
}
