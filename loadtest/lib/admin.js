// Calls of the admin API: create the sale, audit, restock, close the sale.

import http from 'k6/http';
import * as measure from './measure.js';

function call(config, method, path, { body, key, expect }) {
  const headers = { Authorization: `Bearer ${config.adminToken}`, 'Content-Type': 'application/json' };
  if (key) headers['Idempotency-Key'] = key;
  const name = `${method} ${path.replace(/(sales\/)[^/]+/, '$1{sale}')}`;
  const res = http.request(method, config.admin + path, body ? JSON.stringify(body) : null, { headers, tags: { name }, timeout: '30s' });
  if (res.status !== expect) {
    measure.adminFailed();
    const remedy = { 0: '; start sluice, or set ADMIN to its admin address', 401: '; SLUICE_ADMIN_TOKEN is not that of the server' }[res.status] || '';
    throw new Error(`${method} ${config.admin}${path}: ${res.status || res.error} ${String(res.body || '').slice(0, 300)}${remedy}`);
  }
  return res.json();
}

// createSale creates a sale that opens config.opensIn seconds from now, with one unit per buyer, and returns its id.
export function createSale(config, run) {
  const opensAt = new Date(Date.now() + config.opensIn * 1000).toISOString();
  const body = {
    id: run,
    title: `Load test ${run}`,
    stock: config.stock,
    price: { amount: 1999, currency: 'EUR' },
    per_buyer: 1,
    opens_at: opensAt,
  };
  return call(config, 'POST', '/admin/v1/sales', { body, expect: 201 }).id;
}

// audit returns the unit count of a sale.
export function audit(config, saleId) {
  const found = call(config, 'GET', `/admin/v1/sales/${saleId}/audit`, { expect: 200 });
  const missing = [...measure.states, 'returning'].filter((name) => !Number.isInteger(found[name]));
  if (missing.length > 0 || typeof found.balanced !== 'boolean') {
    throw new Error(`the audit lacks ${missing.join(', ') || 'balanced'}: ${JSON.stringify(found)}`);
  }
  return found;
}

// cancelled returns the number of cancelled orders of a sale, for example because they were not paid in time.
export function cancelled(config, saleId) {
  let n = 0;
  for (let after = ''; after !== undefined; ) {
    const page = call(config, 'GET', `/admin/v1/orders?sale=${saleId}&status=cancelled&limit=1000${after && `&after=${after}`}`, { expect: 200 });
    n += page.orders.length;
    after = page.next;
  }
  return n;
}

// restock adds units, once per key.
export function restock(config, saleId, add, key) {
  call(config, 'POST', `/admin/v1/sales/${saleId}/restock`, { body: { add }, key, expect: 200 });
}

// closeSale ends a sale, so that no rehearsal and no other command treats it as a real one.
export function closeSale(config, saleId) {
  call(config, 'POST', `/admin/v1/sales/${saleId}/close`, { expect: 200 });
}
