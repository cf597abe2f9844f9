#!/bin/sh
# Buys a unit with curl and waits until the order is in the database: SLUICE_URL=... SLUICE_TOKEN=... buy.sh SALE [KEY]
# It retries after 408, 429, 500, 502, 503, 504 and lost responses, and waits for Retry-After.
set -eu
sale=${1:?usage: SLUICE_URL=... SLUICE_TOKEN=... buy.sh SALE [KEY]}
: "${SLUICE_URL:?is not set}" "${SLUICE_TOKEN:?is not set}"
key=${2:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')} # a retry with it returns the same order
body=$(mktemp)
trap 'rm -f "$body"' EXIT

# request CURL-ARGUMENTS...: sets $status and writes the response to $body. The token is passed on standard input, because
# all users of the machine can read the arguments. --retry covers statuses, timeouts and name resolution.
request() {
	attempt=0
	until status=$(printf 'header = "Authorization: Bearer %s"\n' "$SLUICE_TOKEN" |
		curl --config - --no-progress-meter --max-time 40 --retry 8 --output "$body" --write-out '%{http_code}' "$@")
	do
		case $? in
		7 | 16 | 18 | 35 | 52 | 55 | 56 | 92) attempt=$((attempt + 1)) ;; # no connection, or it was lost
		*) exit 1 ;;                                                     # a repetition has the same result
		esac
		[ "$attempt" -le 8 ] || exit 1
		sleep "$attempt"
	done
}

# field NAME: prints a string field of the response, which is flat JSON.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$body"; }

# expect STATUS: prints a refusal and exits, unless the response has this status.
expect() {
	[ "$status" = "$1" ] && return
	echo "$(field code): $(field detail)" >&2
	exit 1
}

request -X POST -H "Idempotency-Key: \"$key\"" "${SLUICE_URL%/}/v1/sales/$sale/orders"
expect 202
order=$(field order_id)
while
	request "${SLUICE_URL%/}/v1/orders/$order?wait=25s"
	expect 200
	[ "$(field status)" = queued ]
do
	sleep 1
done
echo "$order $(field status)"
