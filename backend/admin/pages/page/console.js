// The URL selects the view.
const banner = document.getElementById('banner');
const [, , viewName = '', thing = ''] = location.pathname.split('/').map((p) => { try { return decodeURIComponent(p); } catch { return p; } });

// pollVisible calls a reloader now, and every three seconds while the page is visible.
function pollVisible(load) {
  load();
  setInterval(() => { if (!document.hidden) load(); }, 3000);
}

for (const link of document.querySelectorAll('nav a')) if (link.dataset.view === viewName) {
  link.setAttribute('aria-current', 'page');
  link.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // the navigation of a narrow window scrolls
  document.title = link.textContent + ' · sluice admin';
}

const left = Number(document.body.dataset.left) - performance.now();
const signInAgain = h('a', { href: '/admin/sign-in', onclick: () => {
  signInAgain.href = signInURL(); // the address changes with a filter
  signInAgain.target = hasInput() ? '_blank' : '';
} }, 'Sign in again');
// notice shows a text about the session, with a link to the sign-in form, or removes it.
function notice(text) {
  fill(banner, text, signInAgain);
  banner.hidden = !text;
}
setTimeout(() => notice('Your session expires in ten minutes. '), Math.max(0, Math.min(left - 600_000, 2 ** 31 - 1)));

document.getElementById('actor').before(zoneChoice(), ' ');

live.start();
const shown = { '': overview, sales: thing ? () => saleView(thing) : salesView, orders: thing ? () => orderView(thing) : ordersView, refunds: refundsView, dead: deadView, rehearsals: rehearsalsView, groups: thing ? () => groupView(thing) : groupsView, webhooks: thing ? () => webhookView(thing) : webhooksView, edge: thing === 'policy' ? policyView : edgeView, log: logView }[viewName];
if (shown && !document.querySelector('#view h1')) shown(); // the page of an unknown path has a heading
