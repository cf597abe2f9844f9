// Order status, from the buyer's view.

import http from 'k6/http';
import { sleep } from 'k6';
import { body, wait } from './answer.js';

const name = 'GET /v1/orders/{order}';

// status sends one request, which the server holds for up to waitSeconds while the order is queued, and returns {http, status?, retryAfter}.
export function status(config, buyer, orderId, waitSeconds = 0) {
  const query = waitSeconds > 0 ? `?wait=${waitSeconds}s` : '';
  const res = http.get(`${config.target}/v1/orders/${orderId}${query}`, {
    headers: buyer.headers,
    tags: { name },
    timeout: `${waitSeconds + 10}s`,
  });
  return { http: res.status, status: body(res).status, retryAfter: wait(res) ?? 1 };
}

// follow polls until the order is no longer queued or config.settle has passed. It returns the last status, or 'lost' if the server does
// not know the order.
export function follow(config, buyer, orderId) {
  const deadline = Date.now() + config.settle * 1000;
  for (;;) {
    const seen = status(config, buyer, orderId, 5);
    if (seen.http === 404) return 'lost';
    if (seen.http === 200 && seen.status !== 'queued') return seen.status;
    if (Date.now() > deadline) return seen.status || `unknown (HTTP ${seen.http})`;
    if (seen.http !== 200) sleep(seen.retryAfter);
  }
}
