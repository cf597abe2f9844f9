// api sends one request to the admin API. body is an object, which is sent as JSON, or a Blob. It never rejects; status 0 means that no response arrived. The header Sluice-Admin proves that the
// request comes from the console: a page of another origin cannot send it.
async function api(method, path, body, key) {
  const headers = { Accept: 'application/json', 'Sluice-Admin': '1' };
  if (body) headers['Content-Type'] = body instanceof Blob ? 'application/octet-stream' : 'application/json';
  if (key) headers['Idempotency-Key'] = '"' + key + '"';
  let response;
  try {
    response = await fetch('/admin/v1' + path, { method, headers, body: body instanceof Blob ? body : body ? JSON.stringify(body) : undefined, cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
  } catch {
    return { ok: false, status: 0, problem: method === 'GET' ? 'No response from the server.' : 'No response. The change may or may not have been made; repeating it is safe.' };
  }
  if (expired !== (response.status === 401)) {
    expired = !expired;
    notice(expired ? 'Your session has expired. ' : '');
  }
  if (expired) {
    if (!hasInput()) location.assign(signInURL());
    return { ok: false, status: 401, problem: 'Your session has expired. Sign in again in another tab, then repeat this.' };
  }
  let answer = null;
  try { answer = await response.json(); } catch { /* not JSON: only the status is shown */ }
  if (response.ok) return { ok: true, status: response.status, body: answer };
  return { ok: false, status: response.status, problem: problemText(response.status, answer) };
}

let expired = false; // the session, at the last response

// hasInput reports whether another page would lose what the admin has entered.
const hasInput = () => [...document.querySelectorAll('dialog, textarea')].some((e) => e.open || e.value);

// signInURL leads to the sign-in form, and from there back to this page.
const signInURL = () => '/admin/sign-in?to=' + encodeURIComponent(location.pathname + location.search);

function problemText(status, answer) {
  if (!answer || !answer.title) return 'The server returned ' + status + '.';
  const fields = (answer.errors || []).map((e) => e.field + ' ' + e.detail);
  return fields.length ? fields.join(' · ') : answer.detail || answer.title; // the detail of invalid fields is "see errors"
}

const get = (path, query) => {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query || {})) if (value !== undefined && value !== '' && value !== null) q.set(name, value);
  const text = q.toString();
  return api('GET', path + (text ? '?' + text : ''));
};

const post = (path, body, key) => api('POST', path, body || {}, key);

const part = encodeURIComponent;
