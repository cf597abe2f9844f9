// Receives webhooks: WEBHOOK_SECRET=whsec_... PORT=9000 node webhook.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

// verify reports whether the signature is valid. body is a Buffer with the unmodified bytes of the request.
export function verify(secret, headers, body) {
  const { "webhook-id": id, "webhook-timestamp": time = "", "webhook-signature": signatures = "" } = headers;
  if (!id || !/^\d+$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > 300) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const want = createHmac("sha256", key).update(`${id}.${time}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const got = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return signature.startsWith("v1,") && got.length === want.length && timingSafeEqual(got, want);
  });
}

const { WEBHOOK_SECRET, PORT = "9000" } = process.env;
if (!/^whsec_.{32}/.test(WEBHOOK_SECRET)) { // with an empty secret, any sender can sign
  console.error("usage: WEBHOOK_SECRET=whsec_... PORT=9000 node webhook.mjs");
  process.exit(2);
}
const processed = new Set(); // use a database, and the transaction that processes the webhook

createServer((request, response) => {
  const chunks = [];
  let size = 0;
  request.on("data", (chunk) => {
    if ((size += chunk.length) > 1 << 20) request.destroy();
    chunks.push(chunk);
  });
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    if (!verify(WEBHOOK_SECRET, request.headers, body)) return response.writeHead(401).end();
    const id = request.headers["webhook-id"];
    try {
      if (!processed.has(id)) {
        console.log(JSON.parse(body).type, id); // process it here
        processed.add(id); // afterwards: what fails is sent again
      }
      response.writeHead(204).end();
    } catch (err) {
      console.error(id, err);
      response.writeHead(500).end();
    }
  });
}).listen(Number(PORT), "127.0.0.1");
