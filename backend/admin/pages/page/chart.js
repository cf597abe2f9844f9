// chart draws one line per series over the last minutes. A series is { name, of(sample) -> number or null }.
const W = 320, H = 92;

function nice(top) {
  if (top <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= top);
}

function chart(title, series, format) {
  const grid = svg('g', { class: 'grid' });
  const paths = series.map((_, i) => svg('path', { class: 'line s' + i }));
  const hair = svg('line', { class: 'hair', y1: 0, y2: H, x1: -9, x2: -9 });
  const plot = svg('svg', { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: 'none', class: 'plot', role: 'img' }, grid, ...paths, hair);
  const top = h('span', { class: 'top' });
  const numbers = series.map(() => h('b'));
  const when = h('small', { class: 'soft' });
  const legend = h('div', { class: 'legend' }, series.map((s, i) => h('span', null, h('i', { class: 'key s' + i }), s.name + ' ', numbers[i])), when);
  const el = h('section', { class: 'card chart' }, h('h3', null, title), legend, h('div', { class: 'frame' }, plot, top));
  let shown = [], from = 0, to = 1, at = null;
  for (const y of [0, 0.5, 1]) grid.append(svg('line', { x1: 0, x2: W, y1: 1 + y * (H - 2), y2: 1 + y * (H - 2) }));

  function read() {
    const s = at === null ? shown[shown.length - 1] : shown.reduce((best, one) => (Math.abs(one.at - at) < Math.abs(best.at - at) ? one : best), shown[0]);
    if (!s) return;
    series.forEach((one, i) => { numbers[i].textContent = format(one.of(s)); });
    when.textContent = at === null ? '' : inZone(new Date(s.at), { ...clockParts, second: '2-digit' });
    const x = at === null ? -9 : ((s.at - from) / (to - from)) * W;
    hair.setAttribute('x1', x);
    hair.setAttribute('x2', x);
  }
  plot.addEventListener('pointermove', (e) => {
    const box = plot.getBoundingClientRect();
    at = from + ((e.clientX - box.left) / box.width) * (to - from);
    read();
  });
  plot.addEventListener('pointerleave', () => { at = null; read(); });

  function draw(samples, seconds) {
    shown = samples;
    to = samples.length ? samples[samples.length - 1].at : Date.now();
    from = to - seconds * 1000;
    const values = series.map((s) => samples.map((one) => [one.at, s.of(one)]));
    const highest = nice(Math.max(0, ...values.flat().map(([, v]) => v || 0)));
    top.textContent = format(highest);
    values.forEach((line, i) => {
      let d = '', pen = false;
      for (const [t, v] of line) {
        if (v === null || v === undefined) { pen = false; continue; }
        d += (pen ? 'L' : 'M') + (((t - from) / (to - from)) * W).toFixed(1) + ' ' + (H - 1 - (v / highest) * (H - 2)).toFixed(1) + (pen ? '' : 'h.01'); // a single second is a dot
        pen = true;
      }
      paths[i].setAttribute('d', d);
    });
    read();
    const last = samples[samples.length - 1];
    plot.setAttribute('aria-label', title + ': ' + (last ? series.map((s) => s.name + ' ' + format(s.of(last))).join(', ') : 'no data'));
  }
  return { el, draw };
}
