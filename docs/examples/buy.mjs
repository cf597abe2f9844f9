// Buys one unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... node buy.mjs SALE [KEY]
const { SLUICE_URL, SLUICE_TOKEN } = process.env;
const [sale, key = crypto.randomUUID()] = process.argv.slice(2); // the key names this purchase: the same again gets the same order

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// ask sends a request until it gets an answer that another attempt would not change.
async function ask(method, path, headers = {}, seconds = 10) {
  for (let attempt = 1; ; attempt++) {
    let wait = Math.min(10, 0.25 * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);
    try {
      const answer = await fetch(SLUICE_URL + path, {
        method,
        headers: { authorization: `Bearer ${SLUICE_TOKEN}`, ...headers },
        redirect: "error",
        signal: AbortSignal.timeout(seconds * 1000),
      });
      const body = await answer.json();
      if (![429, 502, 503, 504].includes(answer.status) || attempt === 8) return { status: answer.status, body };
      wait = (Number(answer.headers.get("retry-after")) || wait) + Math.random() / 4;
    } catch (err) {
      if (attempt === 8) throw err; // no answer: it may have had its effect, and asking again with the key is safe
    }
    await pause(wait);
  }
}

const bought = await ask("POST", `/v1/sales/${encodeURIComponent(sale)}/orders`, { "idempotency-key": `"${key}"` });
if (bought.status !== 202) {
  console.error(`${bought.body.code}: ${bought.body.detail}`);
  process.exit(1);
}
let order;
for (;;) {
  order = await ask("GET", `/v1/orders/${bought.body.order_id}?wait=25s`, {}, 40); // order ids are strings: they exceed 2^53
  if (order.status !== 200 || order.body.status !== "queued") break;
  await pause(1);
}
console.log(bought.body.order_id, order.body.status);
