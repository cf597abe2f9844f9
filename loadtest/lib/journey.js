// The visit of one buyer: purchase requests (some doubled), retries after Retry-After, and, after a purchase, checks of the guarantees.

import { sleep } from 'k6';
import { click } from './purchase.js';
import { follow } from './order.js';
import * as measure from './measure.js';

const holding = ['accepted', 'replayed', 'already_bought'];
const worthAnotherTry = ['limited', 'not_open', 'failed'];

// best returns the response that a person would act on after a double click.
const best = (answers) => answers.find((a) => holding.includes(a.outcome)) || answers[0];

class Journey {
  constructor(config, sale, buyer, tags) {
    Object.assign(this, { config, sale, buyer, tags });
    this.orders = new Set();
  }

  click(options) {
    const answers = click(this.config, this.sale.id, this.buyer, { ...options, tags: this.tags });
    for (const answer of answers) {
      if (!holding.includes(answer.outcome) || this.orders.has(answer.orderId)) continue;
      this.orders.add(answer.orderId);
      measure.ordered();
      if (this.orders.size > this.sale.per_buyer) {
        measure.violation('one-per-buyer', `${this.buyer.name} has the orders ${[...this.orders].join(', ')}`);
      }
    }
    return answers;
  }

  buy() {
    const how = this.buyer.doubleClick(this.config.doubleKeyed, this.config.doubleBare);
    this.keyed = how !== 'bare';
    const options = { key: this.keyed ? this.buyer.key : undefined, times: how === 'once' ? 1 : 2 };
    for (let retries = 0; ; retries++) {
      const answer = best(this.click(options));
      const wait = answer.retryAfter ?? 1;
      if (retries >= this.config.retries || !worthAnotherTry.includes(answer.outcome) || wait > this.config.patience) return;
      sleep(wait);
    }
  }

  // again verifies that a repeated request returns the same order, and that another request returns already-bought with that order.
  again() {
    const [order] = this.orders;
    sleep(1);
    if (this.keyed) this.expect('replayed', order, { key: this.buyer.key });
    if (this.sale.per_buyer === 1) this.expect('already_bought', order, {});
  }

  expect(outcome, order, options) {
    const [answer] = this.click(options);
    if (answer.outcome === 'limited' || answer.outcome === 'failed') return; // no statement about the order
    if (answer.outcome !== outcome || answer.orderId !== order) {
      const got = `${answer.outcome} ${answer.orderId || ''}`;
      measure.violation('same-answer', `${this.buyer.name} has order ${order} and got ${got}, want ${outcome}`);
    }
  }

  follow(since) {
    const [order] = this.orders;
    const status = follow(this.config, this.buyer, order);
    if (status === 'created' || status === 'paid') measure.orderBecameRow(Date.now() - since);
    else measure.violation('accepted-becomes-a-row', `order ${order} of ${this.buyer.name} is ${status}`);
  }
}

function visit(config, sale, buyer, tags) {
  const journey = new Journey(config, sale, buyer, tags);
  journey.buy();
  const since = Date.now();
  if (journey.orders.size === 0) return;
  if (buyer.does('follow', config.follow)) journey.follow(since);
  if (buyer.does('again', config.again)) journey.again();
}

// travel runs the visit of one buyer.
export function travel(config, sale, buyer, tags = {}) {
  measure.interrupted();
  try {
    visit(config, sale, buyer, tags);
  } finally {
    measure.interrupted(-1);
  }
}
