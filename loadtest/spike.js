// Spike test: a few buyers arrive before the opening, then the rate rises within two seconds and most buyers find the sale sold out.
// Each buyer has an address of its own, which the edge accepts with loadtest/policy.lua.

import exec from 'k6/execution';
import { Buyer } from './lib/buyer.js';
import { load } from './lib/config.js';
import { travel } from './lib/journey.js';
import { common, every } from './lib/options.js';
import { prepare, settle, watch } from './lib/sale.js';
import { sellsOut, thresholds } from './lib/thresholds.js';
import { summary } from './lib/verdict.js';

const config = load({ rate: 200, duration: '15s', stock: 400, opensIn: 5, maxVUs: 400, forwarded: true });

const early = Math.max(1, Math.round(config.rate / 20));
const stages = [
  { target: early, duration: 0 },
  { target: early, duration: Math.max(1, config.opensIn) },
  { target: config.rate, duration: 2 },
  { target: config.rate, duration: config.duration },
  { target: 0, duration: 3 },
];
const total = stages.reduce((sum, stage) => sum + stage.duration, 0);
const planned = stages.reduce((sum, stage, i) => sum + (stage.duration * (stage.target + (i ? stages[i - 1].target : early))) / 2, 0);

export const options = {
  scenarios: {
    flood: {
      executor: 'ramping-arrival-rate',
      exec: 'buy',
      startRate: early,
      stages: stages.map(({ target, duration }) => ({ target, duration: `${duration}s` })),
      preAllocatedVUs: config.maxVUs,
      gracefulStop: '60s',
    },
    auditor: every(config.auditEvery, 'look', total),
  },
  ...common(config),
  thresholds: thresholds(config, planned, { audit_balanced: ['rate==1'], ...sellsOut(config) }),
};

export const setup = () => prepare(config);

export function buy({ run, sale }) {
  travel(config, sale, new Buyer(run, exec.scenario.iterationInTest, config));
}

export const look = (data) => watch(config, data);
export const teardown = (data) => settle(config, total, data);
export const handleSummary = (data) => summary('spike', config, data);
