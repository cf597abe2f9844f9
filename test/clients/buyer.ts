// Buys a unit with the client of openapi-fetch and the types that openapi-typescript generates. The test of this
// directory compiles and runs it. It exits with 1 and the failed assertion if a response is not as documented.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/api.js";

const { SLUICE_URL, SALE, BUYER_TOKEN } = process.env;
assert(SLUICE_URL && SALE && BUYER_TOKEN, "set SLUICE_URL, SALE and BUYER_TOKEN");

const buyer = createClient<paths>({ baseUrl: SLUICE_URL, headers: { Authorization: `Bearer ${BUYER_TOKEN}` } });
const stranger = createClient<paths>({ baseUrl: SLUICE_URL });

const buy = (client: typeof buyer, key: string) =>
  client.POST("/v1/sales/{sale}/orders", { params: { path: { sale: SALE }, header: { "Idempotency-Key": key } }, body: {} });

type Code = components["schemas"]["Problem"]["code"];

const sale = await buyer.GET("/v1/sales/{sale}", { params: { path: { sale: SALE } } });
assert.equal(sale.data?.state, "open");
assert.equal(sale.data.closes_at, null);

const key = randomUUID();
const bought = await buy(buyer, key);
assert.equal(bought.response.status, 202);
assert.equal(bought.data?.status, "queued");
assert.equal(bought.response.headers.get("Location"), `/v1/orders/${bought.data.order_id}`);

const replayed = await buy(buyer, key);
assert.equal(replayed.response.status, 202);
assert.deepEqual(replayed.data, bought.data);
assert.equal(replayed.response.headers.get("Idempotency-Replayed"), "true");

const order = await buyer.GET("/v1/orders/{order}", {
  params: { path: { order: bought.data.order_id }, query: { wait: "30s" } },
});
assert.equal(order.data?.status, "created");

const second = await buy(buyer, randomUUID());
assert.equal(second.response.status, 409);
assert.equal(second.error?.code, "already-bought" satisfies Code);
assert.equal(second.error.order_id, bought.data.order_id);

const rejected = await buy(stranger, randomUUID());
assert.equal(rejected.response.status, 401);
assert.equal(rejected.error?.code, "unauthorized" satisfies Code);
