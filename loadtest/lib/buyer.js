// A virtual buyer: a name, a token and an address of its own. Everything about buyer n of a run follows from n, so that a run can be
// repeated habit by habit.

import { sign } from './token.js';

// 10.0.0.0/8 has room for 16 million buyers; the edge sees these addresses only where its policy trusts this machine as a proxy.
function addressOf(n) {
  const host = (n % 0xfffffe) + 1;
  return `10.${host >> 16}.${(host >> 8) & 255}.${host & 255}`;
}

// A number from 0 to 1 that is fixed for (n, salt): the murmur3 finisher over both.
function fixed(n, salt) {
  let h = Math.imul(n + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 0x100000000;
}

const salts = { double: 1, again: 2, follow: 3 };

export class Buyer {
  // run tells the buyers of one run from those of the next; n counts from 0.
  constructor(run, n, config) {
    this.n = n;
    this.name = `${run}-${n}`;
    this.key = `"${run}-${n}-1"`;
    this.address = addressOf(Math.floor(n / config.buyersPerAddress));
    this.headers = { Authorization: `Bearer ${sign(config.tokenSecret, this.name)}` };
    if (config.forwarded) this.headers['X-Forwarded-For'] = this.address;
  }

  // does tells whether this buyer has a habit that the given share of all buyers has.
  does(habit, share) {
    return fixed(this.n, salts[habit]) < share;
  }

  // doubleClick tells how this buyer clicks: once, or twice at the same time, with or without one idempotency key for both.
  doubleClick(keyed, bare) {
    const x = fixed(this.n, salts.double);
    if (x < keyed) return 'keyed';
    return x < keyed + bare ? 'bare' : 'once';
  }
}
