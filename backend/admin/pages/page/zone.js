// Times are shown and entered in one zone: the browser's, or UTC.
const zone = (() => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let chosen = '';
  try { chosen = localStorage.getItem('sluice-zone') || ''; } catch { /* storage is blocked: the zone is the browser's */ }
  const name = chosen === 'UTC' ? 'UTC' : own;
  function choose(to) {
    try { localStorage.setItem('sluice-zone', to); } catch { /* the choice lasts for this page only */ }
    if (hasInput()) toast('The next page shows its times in this zone.'); else location.reload();
  }
  return { own, name, choose };
})();

const dateParts = { day: 'numeric', month: 'short', year: 'numeric' }, clockParts = { hour: '2-digit', minute: '2-digit' };
const asUTC = (text) => text.replace(/GMT([+]00:00)?/, 'UTC'); // browsers write GMT
const inZone = (at, style) => asUTC(at.toLocaleString('en-GB', { ...style, timeZone: zone.name }));
const exactly = (at) => inZone(at, { ...dateParts, ...clockParts, second: '2-digit', timeZoneName: 'longOffset' }) + ' · ' + at.toISOString();

// stamp shows a time in short form, with the exact time, its offset and UTC as a tooltip.
function stamp(text) {
  if (!text) return h('span', { class: 'soft' }, '–');
  const at = new Date(text), today = inZone(at, dateParts) === inZone(new Date(), dateParts);
  return h('time', { datetime: text, title: exactly(at) }, inZone(at, today ? { ...clockParts, second: '2-digit' } : { ...dateParts, ...clockParts }));
}

// longStamp shows a time with its date and the offset of its zone.
const longStamp = (text) => h('time', { datetime: text, title: exactly(new Date(text)) }, inZone(new Date(text), { ...dateParts, ...clockParts, timeZoneName: 'longOffset' }));

// instant returns the time of an input of type datetime-local. A time that the zone's clocks skip is an hour later; of a time that they repeat, the
// first is used.
const instant = (value) => new Date(zone.name === 'UTC' ? value + 'Z' : value);

// meaning explains the value of such an input: with its offset, and in UTC.
function meaning(value) {
  const at = instant(value);
  if (Number.isNaN(at.getTime())) return '';
  return inZone(at, { ...dateParts, ...clockParts, timeZoneName: 'longOffset' }) + (zone.name === 'UTC' ? '' : ', which is ' + at.toISOString().slice(0, 16).replace('T', ' ') + ' UTC');
}

// zoneChoice is the control in the header.
function zoneChoice() {
  const offset = asUTC(new Date().toLocaleTimeString('en-GB', { timeZone: zone.own, timeZoneName: 'longOffset' }).split(' ').pop());
  const options = [[zone.own, zone.own.replaceAll('_', ' ') + (offset === 'UTC' ? '' : ' (' + offset + ')')], ['UTC', 'UTC']].slice(0, zone.own === 'UTC' ? 1 : 2);
  return h('select', { 'aria-label': 'Time zone', class: 'zone', onchange: (e) => zone.choose(e.target.value) }, options.map(([value, name]) => h('option', { value, selected: value === zone.name || undefined }, name)));
}
