// setup and teardown of a run: the sale before, and what must be true of it after.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { audit, createSale } from './operator.js';
import * as measure from './measure.js';

// prepare makes the sale (or takes SALE) and returns what every virtual user needs to know: {run, sale, before}.
export function prepare(config) {
  const run = `load-${Date.now().toString(36)}`;
  const id = config.sale || createSale(config, run);
  const res = http.get(`${config.target}/v1/sales/${id}`);
  if (res.status !== 200) throw new Error(`GET ${config.target}/v1/sales/${id}: ${res.status || res.error}; do TARGET and ADMIN belong together?`);
  return { run, sale: res.json(), before: audit(config, id) };
}

const waiting = (books) => books.ready + books.delayed + books.leased;
const accounted = (books) => books.left + waiting(books) + books.ordered + books.dead;

// idle returns the audit once nothing of the sale is queued, or the last one before config.settle has passed.
function idle(config, saleId) {
  const deadline = Date.now() + config.settle * 1000;
  for (;;) {
    const books = audit(config, saleId);
    if (waiting(books) === 0 || Date.now() > deadline) return books;
    sleep(0.5);
  }
}

// breaches lists what the books prove to be wrong, in words for the person who runs the test.
export function breaches(books) {
  const found = [];
  const accepted = books.stock - books.left;
  if (!books.balanced) found.push('the server says that its books do not balance');
  if (accounted(books) !== books.stock) found.push(`left + ready + delayed + leased + ordered + dead is ${accounted(books)}, the stock is ${books.stock}`);
  if (books.ordered > books.stock || books.left < 0) found.push(`oversold: ${books.ordered} rows and ${books.left} left of a stock of ${books.stock}`);
  if (waiting(books) > 0) found.push(`${waiting(books)} orders are still queued; SETTLE may be too short`);
  if (books.dead > 0) found.push(`${books.dead} orders are dead letters`);
  if (accepted !== books.ordered) found.push(`${accepted} units were sold and ${books.ordered} are rows`);
  return found;
}

// settle waits for the queue, closes the account of what buyers were told, and fails the run if the books are wrong. k6 then exits with a
// code other than 0: 110 (marked as failed), or 99 or 107 where a threshold or an error came first.
export function settle(config, { sale, before }) {
  const books = idle(config, sale.id);
  measure.closed(books);
  measure.rows(books.ordered - before.ordered);
  const found = breaches(books);
  for (const breach of found) measure.broken('the-books-balance', breach);
  if (found.length > 0) exec.test.fail(`sale ${sale.id}: ${found.join('; ')}`);
}

// watch takes one audit while the sale goes on: the books must balance at every instant, not only at the end.
export function watch(config, { sale }) {
  const books = audit(config, sale.id);
  measure.audited(books);
  if (!books.balanced || accounted(books) !== books.stock) measure.broken('the-books-balance', `during the sale: ${JSON.stringify(books)}`);
}
