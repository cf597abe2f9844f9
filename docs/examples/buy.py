"""Buys one unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... python3 buy.py SALE [KEY]"""
import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


def ask(method, path, headers=None, seconds=10):
    """Sends a request until it gets an answer that another attempt would not change; returns its status and JSON."""
    for attempt in range(1, 9):
        wait = min(10, 0.25 * 2 ** (attempt - 1)) * random.uniform(0.5, 1)
        request = urllib.request.Request(os.environ["SLUICE_URL"] + path, method=method, headers=headers or {})
        request.add_unredirected_header("Authorization", "Bearer " + os.environ["SLUICE_TOKEN"])
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            if refusal.code not in (429, 502, 503, 504) or attempt == 8:
                return refusal.code, json.load(refusal)
            after = refusal.headers.get("Retry-After", "")
            wait = (int(after) if after.isdigit() else wait) + random.uniform(0, 0.25)
        except (OSError, http.client.HTTPException):
            if attempt == 8:
                raise  # no answer: it may have had its effect, and asking again with the key is safe
        time.sleep(wait)


def main():
    sale = sys.argv[1]
    key = sys.argv[2] if len(sys.argv) > 2 else str(uuid.uuid4())  # names this purchase: the same again gets the same order
    status, bought = ask("POST", f"/v1/sales/{urllib.parse.quote(sale)}/orders", {"Idempotency-Key": f'"{key}"'})
    if status != 202:
        sys.exit(f"{bought['code']}: {bought['detail']}")
    while True:
        status, order = ask("GET", f"/v1/orders/{bought['order_id']}?wait=25s", seconds=40)
        if status != 200 or order["status"] != "queued":
            break
        time.sleep(1)
    print(bought["order_id"], order["status"])


if __name__ == "__main__":
    main()
