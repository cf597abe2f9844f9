// A virtual buyer with a name, a token and an address. All properties of buyer n are derived from n, so two runs with the same variables
// send the same requests.

import { sign } from './token.js';

// addressOf returns one of 16 million addresses of 10.0.0.0/8. The edge uses it only if its policy trusts this machine as a proxy.
function addressOf(n) {
  const host = (n % 0xfffffe) + 1;
  return `10.${host >> 16}.${(host >> 8) & 255}.${host & 255}`;
}

// fixed returns a number from 0 to 1 that depends only on (n, salt): the murmur3 finalizer over both.
function fixed(n, salt) {
  let h = Math.imul(n + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 0x100000000;
}

const salts = { double: 1, again: 2, follow: 3 };

export class Buyer {
  // run distinguishes the buyers of different runs; n counts from 0.
  constructor(run, n, config) {
    this.n = n;
    this.name = `${run}-${n}`;
    this.key = `"${run}-${n}-1"`;
    this.address = addressOf(Math.floor(n / config.buyersPerAddress));
    this.headers = { Authorization: `Bearer ${sign(config.tokenSecret, this.name)}` };
    if (config.forwarded) this.headers['X-Forwarded-For'] = this.address;
  }

  // does returns whether this buyer is one of the given share of buyers with a behaviour.
  does(habit, share) {
    return fixed(this.n, salts[habit]) < share;
  }

  // doubleClick returns 'once', or 'keyed' or 'bare' for two concurrent requests with and without a shared idempotency key.
  doubleClick(keyed, bare) {
    const x = fixed(this.n, salts.double);
    if (x < keyed) return 'keyed';
    return x < keyed + bare ? 'bare' : 'once';
  }
}
