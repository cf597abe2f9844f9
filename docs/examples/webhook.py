"""Receives webhooks: WEBHOOK_SECRET=whsec_... PORT=9000 python3 webhook.py"""
import base64
import hashlib
import hmac
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

processed = set()  # use a database, and the transaction that processes the webhook
one_at_a_time = threading.Lock()


def verify(secret, headers, body):
    """Reports whether the signature is valid. The body must be the unmodified bytes of the request."""
    webhook_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not webhook_id or not (stamp.isascii() and stamp.isdigit()) or abs(time.time() - int(stamp)) > 300:
        return False
    key = base64.b64decode(secret[len("whsec_"):])
    want = base64.b64encode(hmac.new(key, f"{webhook_id}.{stamp}.".encode() + body, hashlib.sha256).digest())
    given = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(signature, b"v1," + want) for signature in given)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        size = self.headers.get("Content-Length", "0")
        if not (size.isascii() and size.isdigit()) or int(size) > 1 << 20:
            return self.respond(413)
        body = self.rfile.read(int(size))
        if not verify(os.environ["WEBHOOK_SECRET"], self.headers, body):
            return self.respond(401)
        webhook_id = self.headers["webhook-id"]
        try:
            with one_at_a_time:
                if webhook_id not in processed:
                    print(json.loads(body)["type"], webhook_id, flush=True)  # process it here
                    processed.add(webhook_id)  # afterwards: what fails is sent again
        except Exception as error:
            print(webhook_id, repr(error), file=sys.stderr, flush=True)
            return self.respond(500)
        self.respond(204)

    def respond(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if not re.match("whsec_.{32}", os.environ.get("WEBHOOK_SECRET", "")):  # with an empty secret, any sender can sign
        sys.exit("usage: WEBHOOK_SECRET=whsec_... PORT=9000 python3 webhook.py")
    ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Handler).serve_forever()
