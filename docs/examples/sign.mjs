// Signs tokens for buyers with ES256, on the server on which they sign in:
//   openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out private.pem; npm install jose
//   SIGNING_KEY=private.pem KEY_ID=2026-11 node sign.mjs keys          the JWK Set to publish
//   SIGNING_KEY=private.pem KEY_ID=2026-11 node sign.mjs token ann     a token for the buyer ann
import { createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { SignJWT, exportJWK, importPKCS8 } from "jose";

const { SIGNING_KEY, KEY_ID, ISSUER = "https://shop.example", AUDIENCE = "sluice" } = process.env;
const pem = readFileSync(SIGNING_KEY, "utf8");

// publicKeys returns the JWK Set. While a key is replaced, publish the old one beside it.
async function publicKeys() {
  return { keys: [{ ...(await exportJWK(createPublicKey(pem))), kid: KEY_ID, alg: "ES256", use: "sig" }] };
}

// token returns a token for a buyer that has signed in, for a quarter of an hour.
async function token(buyer) {
  return new SignJWT({})
    .setProtectedHeader({ alg: "ES256", kid: KEY_ID, typ: "JWT" })
    .setSubject(buyer)
    .setIssuer(ISSUER)
    .setAudience(AUDIENCE)
    .setIssuedAt()
    .setExpirationTime("15m")
    .sign(await importPKCS8(pem, "ES256"));
}

const [command, buyer] = process.argv.slice(2);
console.log(command === "keys" ? JSON.stringify(await publicKeys()) : await token(buyer));
