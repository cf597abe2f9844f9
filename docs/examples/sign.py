"""Signs tokens for buyers with ES256, on the server on which they sign in:
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out private.pem; pip install 'pyjwt[crypto]'
  SIGNING_KEY=private.pem KEY_ID=2026-11 python3 sign.py keys          the JWK Set to publish
  SIGNING_KEY=private.pem KEY_ID=2026-11 python3 sign.py token ann     a token for the buyer ann
"""
import base64
import json
import os
import sys
import time

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

with open(os.environ["SIGNING_KEY"], "rb") as file:
    KEY = load_pem_private_key(file.read(), password=None)
KEY_ID = os.environ["KEY_ID"]


def public_keys():
    """Returns the JWK Set. While a key is replaced, publish the old one beside it."""

    def encoded(number):
        return base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()

    point = KEY.public_key().public_numbers()
    return {"keys": [{"kty": "EC", "crv": "P-256", "x": encoded(point.x), "y": encoded(point.y),
                      "kid": KEY_ID, "alg": "ES256", "use": "sig"}]}


def token(buyer):
    """Returns a token for a buyer that has signed in, for a quarter of an hour."""
    now = int(time.time())
    claims = {
        "sub": buyer,
        "iss": os.environ.get("ISSUER", "https://shop.example"),
        "aud": os.environ.get("AUDIENCE", "sluice"),
        "iat": now,
        "exp": now + 15 * 60,
    }
    return jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": KEY_ID})


if __name__ == "__main__":
    print(json.dumps(public_keys()) if sys.argv[1] == "keys" else token(sys.argv[2]))
