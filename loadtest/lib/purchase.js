// Purchase requests.

import http from 'k6/http';
import { classify } from './answer.js';
import * as measure from './measure.js';

// Refusals (4xx) are expected; http_req_failed counts 5xx and lost connections.
http.setResponseCallback(http.expectedStatuses({ min: 200, max: 499 }));

const timeout = '10s';

function request(config, saleId, buyer, key) {
  const headers = key ? { ...buyer.headers, 'Idempotency-Key': key } : buyer.headers;
  const tags = { name: 'POST /v1/sales/{sale}/orders' };
  return { method: 'POST', url: `${config.target}/v1/sales/${saleId}/orders`, body: null, params: { headers, tags, timeout } };
}

// click sends `times` concurrent requests and returns their classified responses. tags are added to the metrics.
export function click(config, saleId, buyer, { key, times = 1, tags = {} } = {}) {
  const one = request(config, saleId, buyer, key);
  const responses = times === 1 ? [http.request(one.method, one.url, one.body, one.params)] : http.batch(Array(times).fill(one));
  return responses.map((res) => {
    const answer = classify(res);
    measure.purchase(answer, res.timings.duration, tags);
    return answer;
  });
}
