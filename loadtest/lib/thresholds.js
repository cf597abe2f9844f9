// The thresholds of a run.

import { outcomes } from './answer.js';

// sellsOut returns the threshold of a sale without restocks: buyers that were refused as sold out while units are left at the end. Where
// failures are expected it has none: units of purchases that were lost with Redis, before their responses, are left again.
export const sellsOut = (config) => (config.alone && config.maxFailed === 0 ? { undersold: ['count<=0'] } : {});

// thresholds returns k6's option of that name. planned is the total number of iterations of all scenarios.
export function thresholds(config, planned, extra = {}) {
  const all = {
    'purchases{outcome:accepted}': ['count>=1'],
    'purchase_duration{outcome:accepted}': [`p(95)<${config.p95Accepted}`],
    'purchase_duration{outcome:sold_out}': [`p(95)<${config.p95SoldOut}`],
    purchase_failed: [`rate<=${config.maxFailed}`],
    violations: ['count==0'],
    interruptions: ['count<=0'],
    lost_orders: ['count<=0'],
    dropped_iterations: [`count<=${Math.floor(planned * config.maxDropped)}`],
  };
  if (config.alone) all.unexplained_rows = ['count<=0'];
  if (config.maxFailed === 0) all.admin_failures = ['count==0']; // without restocks and audits, the run proves less

  // k6 keeps the values of a tag only if a threshold uses it. These cannot fail and exist for the verdict.
  for (const outcome of outcomes) {
    all[`purchases{outcome:${outcome}}`] ??= ['count>=0'];
    all[`purchase_duration{outcome:${outcome}}`] ??= ['max>=0'];
  }
  return { ...all, ...extra };
}
