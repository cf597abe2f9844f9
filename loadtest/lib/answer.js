// Classification of purchase responses into outcomes. Any response outside the HTTP contract is 'failed', with a reason.

export const outcomes = ['accepted', 'replayed', 'sold_out', 'already_bought', 'limited', 'not_open', 'failed'];

const refusals = {
  'sold-out': { status: 409, outcome: 'sold_out' },
  'already-bought': { status: 409, outcome: 'already_bought' },
  'sale-not-open': { status: 409, outcome: 'not_open' },
  'sale-paused': { status: 409, outcome: 'not_open' },
  'sale-closed': { status: 409, outcome: 'not_open' },
  'quota-exceeded': { status: 429, outcome: 'limited' },
};

function header(res, name) {
  const wanted = name.toLowerCase();
  for (const key in res.headers) if (key.toLowerCase() === wanted) return res.headers[key];
  return undefined;
}

// body returns the JSON of a response, or an empty object.
export function body(res) {
  try {
    return JSON.parse(res.body) ?? {};
  } catch (_) {
    return {};
  }
}

const failed = (why, retryAfter) => ({ outcome: 'failed', why, retryAfter });

// wait returns the seconds of Retry-After, or undefined.
export function wait(res) {
  const raw = header(res, 'Retry-After');
  return raw !== undefined && /^[1-9]\d*$/.test(raw) ? Number(raw) : undefined;
}

function accepted(res) {
  const { order_id: orderId, status } = body(res);
  if (typeof orderId !== 'string' || !/^[1-9]\d*$/.test(orderId)) return failed('202 without an order id in digits');
  if (status !== 'queued') return failed(`202 with status ${status}`);
  if (header(res, 'Location') !== `/v1/orders/${orderId}`) return failed('202 without Location');
  return { outcome: header(res, 'Idempotency-Replayed') === 'true' ? 'replayed' : 'accepted', orderId };
}

// classify turns a k6 response to POST /v1/sales/{sale}/orders into {outcome, orderId?, retryAfter? (seconds), why?}.
export function classify(res) {
  if (res.status === 0) return failed(res.error || 'no response');
  if (res.status === 202) return accepted(res);
  if (!(header(res, 'Content-Type') || '').startsWith('application/problem+json')) return failed(`${res.status} without problem+json`);

  const { code, order_id: orderId } = body(res);
  const refusal = refusals[code];
  if (!refusal || refusal.status !== res.status) return failed(`${res.status} ${code}`, wait(res));

  const answer = { outcome: refusal.outcome, orderId, retryAfter: wait(res) };
  if (answer.outcome === 'limited' && answer.retryAfter === undefined) return failed('429 without Retry-After in seconds');
  if (answer.outcome === 'already_bought' && !orderId) return failed('already-bought without order_id');
  return answer;
}
