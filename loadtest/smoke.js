// Smoke test: a small sale from the opening to sold out. Every order is followed until it is a row, and the HTTP contract is checked.
// Takes half a minute and stays below the per-address limit of the default policy.

import http from 'k6/http';
import exec from 'k6/execution';
import { check } from 'k6';
import { Buyer } from './lib/buyer.js';
import { load } from './lib/config.js';
import { travel } from './lib/journey.js';
import { common } from './lib/options.js';
import { prepare, settle } from './lib/sale.js';
import { sellsOut, thresholds } from './lib/thresholds.js';
import { summary } from './lib/verdict.js';

const config = load({ rate: 2, duration: '10s', stock: 12, maxVUs: 20, forwarded: false, again: 1, follow: 1 });

export const options = {
  scenarios: {
    sale: {
      executor: 'constant-arrival-rate',
      exec: 'buy',
      rate: config.rate,
      duration: `${config.duration}s`,
      preAllocatedVUs: config.maxVUs,
    },
    // Two seconds later: for up to a second after the last refusal, the edge answers every purchase of a sold-out sale from memory, with
    // 409 also for requests without a valid token.
    contract: { executor: 'per-vu-iterations', exec: 'contract', vus: 1, iterations: 1, startTime: `${config.duration + 2}s` },
  },
  ...common(config),
  thresholds: thresholds(config, config.rate * config.duration, { checks: ['rate==1'], ...sellsOut(config) }),
};

export const setup = () => prepare(config);

export function buy({ run, sale }) {
  travel(config, sale, new Buyer(run, exec.scenario.iterationInTest, config));
}

const problem = (status, code) => (res) =>
  res.status === status && res.headers['Content-Type'] === 'application/problem+json' && res.json('code') === code;

// contract checks public responses: status codes, problem codes, and what must not be visible.
export function contract({ run, sale }) {
  const stranger = new Buyer(`${run}-stranger`, 0, config);
  const orders = `${config.target}/v1/sales/${sale.id}/orders`;

  check(http.get(`${config.target}/healthz`), { 'healthz is 200': (res) => res.status === 200 });
  check(http.get(`${config.target}/v1/sales/${sale.id}`), {
    'the sale shows what is left': (res) => res.status === 200 && Number.isInteger(res.json('left')) && res.json('left') <= sale.stock,
  });
  check(http.post(orders), {
    'no token is 401': problem(401, 'unauthorized'),
    'a 401 names the scheme': (res) => (res.headers['Www-Authenticate'] || '').startsWith('Bearer'),
  });
  check(http.post(orders, null, { headers: { Authorization: `${stranger.headers.Authorization}x` } }), {
    'a token with a wrong signature is 401': problem(401, 'unauthorized'),
  });
  check(http.get(`${config.target}/v1/orders/1`, { headers: stranger.headers }), { 'an unknown order is 404': problem(404, 'not-found') });
  check(http.post(`${config.target}/v1/sales/${run}-nothing/orders`, null, { headers: stranger.headers }), {
    'an unknown sale is 404': problem(404, 'not-found'),
  });
}

export const teardown = (data) => settle(config, config.duration + 2, data);
export const handleSummary = (data) => summary('smoke', config, data);
