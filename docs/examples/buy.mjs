// Buys a unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... node buy.mjs SALE [KEY]
const { SLUICE_URL, SLUICE_TOKEN } = process.env;
const [sale, key = crypto.randomUUID()] = process.argv.slice(2); // a retry with the same key returns the same order
if (!SLUICE_URL || !SLUICE_TOKEN || !sale) {
  console.error("usage: SLUICE_URL=... SLUICE_TOKEN=... node buy.mjs SALE [KEY]");
  process.exit(2);
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// request sends a request and retries after 429, 502, 503, 504 and lost responses.
async function request(method, path, headers = {}, seconds = 10) {
  for (let attempt = 1; ; attempt++) {
    let wait = Math.min(10, 0.25 * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);
    let reason;
    try {
      const response = await fetch(SLUICE_URL.replace(/\/$/, "") + path, {
        method,
        headers: { authorization: `Bearer ${SLUICE_TOKEN}`, ...headers },
        redirect: "error",
        signal: AbortSignal.timeout(seconds * 1000),
      });
      const text = await response.text(); // a busy proxy may answer without JSON
      if (![429, 502, 503, 504].includes(response.status) || attempt === 8) return { status: response.status, body: JSON.parse(text) };
      wait = (Number(response.headers.get("retry-after")) || wait) + Math.random() / 4;
      reason = `status ${response.status}`;
    } catch (err) {
      if (attempt === 8) throw err; // no response: the server may have accepted the order; a retry with the same key is safe
      reason = `no response: ${err.message}`;
    }
    console.error(`${reason}; retry in ${wait.toFixed(1)} s`);
    await sleep(wait);
  }
}

// fail prints a refusal and exits.
function fail({ body }) {
  console.error(`${body.code}: ${body.detail}`);
  process.exit(1);
}

const bought = await request("POST", `/v1/sales/${encodeURIComponent(sale)}/orders`, { "idempotency-key": `"${key}"` });
if (bought.status !== 202) fail(bought);
let order;
for (;;) {
  order = await request("GET", `/v1/orders/${bought.body.order_id}?wait=25s`, {}, 40); // order ids are strings, because they exceed 2^53
  if (order.status !== 200) fail(order);
  if (order.body.status !== "queued") break;
  await sleep(1);
}
console.log(bought.body.order_id, order.body.status);
