// One call of the public API. It resolves whatever happens: status 0 means that no answer came, or that one was cut before it said what it had to say.
async function call(method, path, { token, key, timeout = 15000 } = {}) {
  const headers = { Accept: 'application/json' };
  if (token) headers.Authorization = 'Bearer ' + token;
  if (key) headers['Idempotency-Key'] = '"' + key + '"';
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), timeout);
  try {
    const response = await fetch(path, { method, headers, signal: late.signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
    clock.heard(response);
    let body = {};
    try {
      body = await response.json();
    } catch {
      if (response.ok) return { status: 0, body, wait: 0 };
      // else an answer of something between us and the shop: its status is all there is
    }
    return { status: response.status, body: body || {}, wait: Number(response.headers.get('retry-after')) || 0 };
  } catch {
    return { status: 0, body: {}, wait: 0 };
  } finally {
    clearTimeout(timer);
  }
}

const salePath = '/v1/sales/' + encodeURIComponent(root.dataset.sale);
const orderPath = (id) => '/v1/orders/' + encodeURIComponent(id);

