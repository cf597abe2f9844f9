const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const count = (n) => (n === null || n === undefined ? '–' : whole.format(Math.round(n)));
const short = (n) => (n === null || n === undefined ? '–' : Math.abs(n) < 10_000 ? whole.format(Math.abs(n) < 10 ? Math.round(n * 10) / 10 : Math.round(n)) : compact.format(n));
// counted returns a number with its noun, and other words that depend on whether it is one.
const counted = (n, one, many = one + 's') => count(n) + ' ' + (n === 1 ? one : many);

function span(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds === 0) return '0 s';
  if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
  if (seconds < 100) return Math.round(seconds * 10) / 10 + ' s';
  if (seconds < 6000) return Math.round(seconds / 60) + ' min';
  if (seconds < 172_800) return Math.round(seconds / 3600) + ' h';
  return Math.round(seconds / 86_400) + ' d';
}

const millis = (ms) => (ms === null || ms === undefined ? '–' : ms < 10 ? Math.round(ms * 10) / 10 + ' ms' : ms < 1000 ? Math.round(ms) + ' ms' : span(ms / 1000));

// The decimals of currencies come from the server, so that the console and the command line read and write the same amounts.
const unusualDecimals = JSON.parse(document.body.dataset.decimals);
const decimalsOf = (currency) => unusualDecimals[currency] ?? 2;

function price(p) {
  const decimals = decimalsOf(p.currency);
  try {
    return new Intl.NumberFormat('en', { style: 'currency', currency: p.currency, minimumFractionDigits: decimals, maximumFractionDigits: decimals }).format(p.amount / 10 ** decimals);
  } catch {
    return p.amount + ' ' + p.currency; // no currency of ISO 4217
  }
}

// minorUnits reads an amount such as 12.50 into the minor units of its currency. It throws an error that names the remedy.
function minorUnits(text, currency) {
  const decimals = decimalsOf(currency), example = (12.5).toFixed(decimals);
  const [, whole, fraction] = /^(\d{1,15})(?:\.(\d+))?$/.exec(text.trim()) || [];
  if (whole === undefined) throw new Error('Write the price with a point and without a currency, such as ' + example + '.');
  if (fraction !== undefined && fraction.length !== decimals) throw new Error(currency + (decimals ? ' has ' + decimals + ' decimals' : ' has no decimals') + ': write a price such as ' + example + '.');
  return Number(whole + (fraction || '0'.repeat(decimals)));
}

const words = { scheduled: 'scheduled', open: 'open', paused: 'paused', sold_out: 'sold out', closed: 'closed' };
const badge = (state) => h('span', { class: 'badge', 'data-state': state }, words[state] || state);
