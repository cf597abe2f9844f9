// sign returns a buyer's JWT as the shop would issue it: HS256, with sub, iat and exp.

import crypto from 'k6/crypto';
import encoding from 'k6/encoding';

const header = encoding.b64encode(JSON.stringify({ alg: 'HS256', typ: 'JWT' }), 'rawurl');

export function sign(secret, sub, ttlSeconds = 3600) {
  const now = Math.floor(Date.now() / 1000);
  const claims = encoding.b64encode(JSON.stringify({ sub, iat: now, exp: now + ttlSeconds }), 'rawurl');
  const signed = `${header}.${claims}`;
  return `${signed}.${crypto.hmac('sha256', secret, signed, 'base64rawurl')}`;
}
