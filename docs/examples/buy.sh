#!/bin/sh
# Buys one unit with curl and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... buy.sh SALE [KEY]
# curl itself asks again after 429, 503 and lost answers, and waits as Retry-After says.
set -eu
sale=$1
key=${2:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')} # names this purchase: the same again gets the same order
body=$(mktemp)
trap 'rm -f "$body"' EXIT

# ask CURL-ARGUMENTS...: prints the status; the answer is in $body. The token is not among the arguments, where all users of a machine can read it.
ask() {
	printf 'header = "Authorization: Bearer %s"\n' "$SLUICE_TOKEN" |
		curl --config - --silent --show-error --max-time 40 --retry 8 --retry-all-errors --output "$body" --write-out '%{http_code}' "$@"
}

# field NAME: a string of the answer, which is flat JSON.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$body"; }

status=$(ask -X POST -H "Idempotency-Key: \"$key\"" "$SLUICE_URL/v1/sales/$sale/orders")
if [ "$status" != 202 ]; then
	echo "$(field code): $(field detail)" >&2
	exit 1
fi
order=$(field order_id)
while status=$(ask "$SLUICE_URL/v1/orders/$order?wait=25s") && [ "$status" = 200 ] && [ "$(field status)" = queued ]; do
	sleep 1
done
echo "$order $(field status)"
