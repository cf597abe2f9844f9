// What a run must reach to pass, by outcome.

import { outcomes } from './answer.js';

// thresholds returns k6's option of that name; planned is how many iterations the scenarios start in all.
export function thresholds(config, planned, extra = {}) {
  const all = {
    'purchases{outcome:accepted}': ['count>=1'],
    'purchase_duration{outcome:accepted}': [`p(95)<${config.p95Accepted}`],
    'purchase_duration{outcome:sold_out}': [`p(95)<${config.p95SoldOut}`],
    purchase_failed: [`rate<=${config.maxFailed}`],
    broken_promises: ['count==0'],
    lost_orders: ['count<=0'],
    dropped_iterations: [`count<=${Math.floor(planned * config.maxDropped)}`],
  };
  if (config.alone) all.unexplained_rows = ['count<=0'];

  // k6 keeps the numbers of a tag only where a threshold asks for them; these cannot fail and are for the verdict.
  for (const outcome of outcomes) {
    all[`purchases{outcome:${outcome}}`] ??= ['count>=0'];
    all[`purchase_duration{outcome:${outcome}}`] ??= ['max>=0'];
  }
  return { ...all, ...extra };
}
