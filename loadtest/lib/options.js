// The parts of k6's options that the scripts share.

// common returns the timeouts, and the statistics that the verdict shows.
export const common = (config) => ({
  setupTimeout: '60s',
  teardownTimeout: `${config.settle + 60}s`,
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
});

// every returns a scenario that calls a function of the script every `seconds` for `duration` seconds.
export const every = (seconds, exec, duration) => ({
  executor: 'constant-arrival-rate',
  exec,
  rate: 1,
  timeUnit: `${seconds}s`,
  duration: `${duration}s`,
  preAllocatedVUs: 2,
});
