// Soak test: a constant arrival rate for a long time. Regular restocks make the sale alternate between open and sold out. Audits run
// throughout, and the verdict compares the first third of the run with the last. Requires loadtest/policy.lua.

import exec from 'k6/execution';
import { Buyer } from './lib/buyer.js';
import { load } from './lib/config.js';
import { travel } from './lib/journey.js';
import { restock } from './lib/admin.js';
import { common, every } from './lib/options.js';
import { prepare, settle, watch } from './lib/sale.js';
import { thresholds } from './lib/thresholds.js';
import { summary, thirds } from './lib/verdict.js';

const config = load({ rate: 20, duration: '30m', stock: 600, maxVUs: 200, forwarded: true });

// RESTOCK, or half of the requests between two restocks.
const added = config.restock || Math.max(1, Math.round((config.rate * config.restockEvery) / 2));

export const options = {
  scenarios: {
    stream: {
      executor: 'constant-arrival-rate',
      exec: 'buy',
      rate: config.rate,
      duration: `${config.duration}s`,
      preAllocatedVUs: config.maxVUs,
      gracefulStop: '60s',
    },
    auditor: every(config.auditEvery, 'look', config.duration),
    restocker: every(config.restockEvery, 'addStock', config.duration),
  },
  ...common(config),
  thresholds: thresholds(config, config.rate * config.duration, {
    audit_balanced: ['rate==1'],
    ...Object.fromEntries(thirds.map((third) => [`purchase_duration{third:${third}}`, ['max>=0']])),
  }),
};

export const setup = () => prepare(config);

export function buy({ run, sale }) {
  const third = thirds[Math.min(2, Math.floor(exec.scenario.progress * 3))];
  travel(config, sale, new Buyer(run, exec.scenario.iterationInTest, config), { third });
}

export const look = (data) => watch(config, data);

export function addStock({ run, sale }) {
  const n = exec.scenario.iterationInTest;
  if (n > 0) restock(config, sale.id, added, `"${run}-restock-${n}"`);
}

export const teardown = (data) => settle(config, config.duration, data);
export const handleSummary = (data) => summary('soak', config, data);
