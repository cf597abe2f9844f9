// Soak: a steady stream for a long time. The operator restocks now and then, so that selling and being sold out take turns; the books are
// looked at all the while, and the verdict shows the first third of the run beside the last. Wants loadtest/policy.lua, as the spike does.

import exec from 'k6/execution';
import { Buyer } from './lib/buyer.js';
import { load } from './lib/config.js';
import { travel } from './lib/journey.js';
import { restock } from './lib/operator.js';
import { prepare, settle, watch } from './lib/sale.js';
import { thresholds } from './lib/thresholds.js';
import { summary, thirds } from './lib/verdict.js';

const config = load({ rate: 20, duration: '30m', stock: 600, maxVUs: 200, forwarded: true });

// Half of what is asked for in the time between two restocks, unless RESTOCK says otherwise.
const added = config.restock || Math.max(1, Math.round((config.rate * config.restockEvery) / 2));

const everySeconds = (seconds, name) => ({
  executor: 'constant-arrival-rate',
  exec: name,
  rate: 1,
  timeUnit: `${seconds}s`,
  duration: `${config.duration}s`,
  preAllocatedVUs: 2,
});

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
    auditor: everySeconds(config.auditEvery, 'look'),
    operator: everySeconds(config.restockEvery, 'operate'),
  },
  setupTimeout: '60s',
  teardownTimeout: `${config.settle + 60}s`,
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
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

export function operate({ run, sale }) {
  const n = exec.scenario.iterationInTest;
  if (n > 0) restock(config, sale.id, added, `"${run}-restock-${n}"`);
}

export const teardown = (data) => settle(config, data);
export const handleSummary = (data) => summary('soak', config, data);
