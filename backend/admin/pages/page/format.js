const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const count = (n) => (n === null || n === undefined ? '–' : whole.format(Math.round(n)));
const short = (n) => (n === null || n === undefined ? '–' : Math.abs(n) < 10_000 ? whole.format(Math.abs(n) < 10 ? Math.round(n * 10) / 10 : Math.round(n)) : compact.format(n));

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

// stamp shows a time in short form, with the exact time as a tooltip.
function stamp(text) {
  if (!text) return h('span', { class: 'soft' }, '–');
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  const shown = today ? at.toLocaleTimeString('en-GB') : at.toLocaleString('en-GB', { day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit' });
  return h('time', { datetime: text, title: at.toISOString() }, shown);
}

function price(p) {
  try {
    const f = new Intl.NumberFormat('en', { style: 'currency', currency: p.currency });
    return f.format(p.amount / 10 ** f.resolvedOptions().maximumFractionDigits);
  } catch {
    return p.amount + ' ' + p.currency;
  }
}

const words = { scheduled: 'scheduled', open: 'open', paused: 'paused', sold_out: 'sold out', closed: 'closed' };
const badge = (state) => h('span', { class: 'badge', 'data-state': state }, words[state] || state);
