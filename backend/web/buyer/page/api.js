// call sends one request to the public API. It never rejects; status 0 means that no complete response arrived.
async function call(method, path, { token, key, timeout = 15000 } = {}) {
  const headers = { Accept: 'application/json' };
  if (token) headers.Authorization = 'Bearer ' + token;
  if (key) headers['Idempotency-Key'] = '"' + key + '"';
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeout);
  try {
    const response = await fetch(path, { method, headers, signal: controller.signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
    clock.update(response);
    let body = {};
    try {
      body = await response.json();
    } catch {
      if (response.ok) return { status: 0, body, wait: 0 };
      // an error page of a proxy: only its status is used
    }
    return { status: response.status, body: body || {}, wait: Number(response.headers.get('retry-after')) || 0 };
  } catch {
    return { status: 0, body: {}, wait: 0 };
  } finally {
    clearTimeout(timer);
  }
}

const salePath = '/v1/sales/' + encodeURIComponent(root.dataset.sale);
const ordersPath = '/v1/me/orders?sale=' + encodeURIComponent(root.dataset.sale);

