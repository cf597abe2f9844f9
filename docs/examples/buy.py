"""Buys a unit and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... python3 buy.py SALE [KEY]"""
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


def request(method, path, headers=None, seconds=10):
    """Sends a request, retries after 429, 502, 503, 504 and lost responses, and returns status and JSON."""
    for attempt in range(1, 9):
        wait = min(10, 0.25 * 2 ** (attempt - 1)) * random.uniform(0.5, 1)
        message = urllib.request.Request(
            os.environ["SLUICE_URL"].rstrip("/") + path, method=method, headers=headers or {})
        message.add_unredirected_header("Authorization", "Bearer " + os.environ["SLUICE_TOKEN"])
        try:
            with urllib.request.urlopen(message, timeout=seconds) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504) or attempt == 8:
                return error.code, json.load(error)
            after = error.headers.get("Retry-After", "")
            wait = (int(after) if after.isdigit() else wait) + random.uniform(0, 0.25)
            reason = f"status {error.code}"
        except (OSError, http.client.HTTPException) as error:
            if attempt == 8:
                raise  # the server may have accepted the order; a retry with the same key is safe
            reason = f"no response: {error}"
        print(f"{reason}; retry in {wait:.1f} s", file=sys.stderr)
        time.sleep(wait)


def main():
    if len(sys.argv) < 2 or not os.environ.get("SLUICE_URL") or not os.environ.get("SLUICE_TOKEN"):
        sys.exit("usage: SLUICE_URL=... SLUICE_TOKEN=... python3 buy.py SALE [KEY]")
    sale = sys.argv[1]
    key = sys.argv[2] if len(sys.argv) > 2 else str(uuid.uuid4())  # a retry with it returns the same order
    status, bought = request("POST", f"/v1/sales/{urllib.parse.quote(sale)}/orders", {"Idempotency-Key": f'"{key}"'})
    if status != 202:
        sys.exit(f"{bought['code']}: {bought['detail']}")
    while True:
        status, order = request("GET", f"/v1/orders/{bought['order_id']}?wait=25s", seconds=40)
        if status != 200:
            sys.exit(f"{order['code']}: {order['detail']}")
        if order["status"] != "queued":
            break
        time.sleep(1)
    print(bought["order_id"], order["status"])


if __name__ == "__main__":
    main()
