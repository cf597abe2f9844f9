// The configuration of a run, from environment variables (k6 run -e NAME=value, or variables of the shell). All errors are reported
// together, before any request is sent. The README lists every variable.

const problems = [];

const day = 86400; // seconds

function text(name, fallback) {
  const value = __ENV[name];
  return value === undefined || value === '' ? fallback : value;
}

function number(name, fallback, { min = 0, max = Infinity, whole = false } = {}) {
  const raw = text(name, undefined);
  if (raw === undefined) return fallback;
  const value = Number(raw);
  if (!Number.isFinite(value) || value < min || value > max || (whole && !Number.isInteger(value))) {
    problems.push(`${name}=${raw}: use a ${whole ? 'whole ' : ''}number from ${min}${max === Infinity ? ' up' : ` to ${max}`}`);
    return fallback;
  }
  return value;
}

const count = (name, fallback, min = 0, max = Infinity) => number(name, fallback, { min, max, whole: true });
const share = (name, fallback) => number(name, fallback, { max: 1 });

// seconds parses a duration in k6's format: 90s, 5m, 1h30m, 500ms. min and max are in seconds.
function seconds(name, fallback, { min = 0.001, max = 30 * day } = {}) {
  const raw = text(name, fallback);
  const units = { ms: 0.001, s: 1, m: 60, h: 3600 };
  let total = 0;
  const rest = raw.replace(/(\d+(?:\.\d+)?)(ms|s|m|h)/g, (_, n, unit) => {
    total += Number(n) * units[unit];
    return '';
  });
  if (rest !== '') problems.push(`${name}=${raw}: use a duration such as 500ms, 90s or 1h30m`);
  else if (total < min || total > max) problems.push(`${name}=${raw}: use a duration from ${min * 1000}ms to ${max / 3600}h`);
  return total;
}

function flag(name, fallback) {
  const raw = text(name, fallback ? 'yes' : 'no');
  if (raw !== 'yes' && raw !== 'no') problems.push(`${name}=${raw}: use yes or no`);
  return raw === 'yes';
}

// address accepts only this machine unless REMOTE=yes, so that a typing error does not overload another system.
function address(name, fallback) {
  const url = text(name, fallback).replace(/\/+$/, '');
  const host = /^https?:\/\/(\[[^\]]+\]|[^/:?#]+)(:\d+)?$/.exec(url);
  if (!host) problems.push(`${name}=${url}: use http://host:port`);
  else if (!/^(127\.\d+\.\d+\.\d+|localhost|\[::1\])$/.test(host[1]) && text('REMOTE') !== 'yes') {
    problems.push(`${name}=${url}: not this machine; set REMOTE=yes if you may load it`);
  }
  return url;
}

function secret(name, least) {
  const value = text(name, '');
  const length = least > 1 ? `, at least ${least} characters` : '';
  if (value.length < least) {
    problems.push(`${name}: set it to the value of the server${length}, or SLUICE_DATA to the directory of sluice up for loadtest/run`);
  }
  return value;
}

// load returns the configuration. defaults are those of the script: rate, duration, stock, maxVUs and optional others.
export function load(defaults) {
  problems.length = 0;
  const config = {
    target: address('TARGET', 'http://127.0.0.1:8080'),
    admin: address('ADMIN', 'http://127.0.0.1:8081'),
    adminToken: secret('SLUICE_ADMIN_TOKEN', 1),
    tokenSecret: secret('SLUICE_TOKEN_SECRET', 32),

    sale: text('SALE', ''),
    stock: count('STOCK', defaults.stock, 1),
    opensIn: number('OPENS_IN', defaults.opensIn ?? 0, { max: day }),

    rate: count('RATE', defaults.rate, 1, 1e6),
    duration: seconds('DURATION', defaults.duration, { min: 1 }),
    maxVUs: count('MAX_VUS', defaults.maxVUs, 1, 1e5),

    forwarded: flag('FORWARDED', defaults.forwarded),
    buyersPerAddress: count('BUYERS_PER_ADDRESS', 1, 1),
    doubleKeyed: share('DOUBLE_KEYED', 0.1),
    doubleBare: share('DOUBLE_BARE', 0.1),
    again: share('AGAIN', defaults.again ?? 0.1),
    follow: share('FOLLOW', defaults.follow ?? 0.1),
    retries: count('RETRIES', 2),
    patience: seconds('PATIENCE', '10s'),

    auditEvery: count('AUDIT_EVERY', 2, 1),
    restockEvery: count('RESTOCK_EVERY', 60, 1),
    restock: count('RESTOCK', 0),
    settle: seconds('SETTLE', '2m'),
    alone: flag('ALONE', true),

    maxFailed: share('MAX_FAILED', 0),
    maxDropped: share('MAX_DROPPED', 0.01),
    p95Accepted: number('P95_ACCEPTED', defaults.p95Accepted ?? 500, { min: 1 }),
    p95SoldOut: number('P95_SOLD_OUT', defaults.p95SoldOut ?? 250, { min: 1 }),

    out: text('OUT', '.'),
  };
  if (problems.length > 0) throw new Error(`invalid configuration\n  ${problems.join('\n  ')}`);
  return Object.freeze(config);
}
