package api

import (
	"crypto/rand"
	"strings"
	"time"
)

// clientKeyTTL is how long Redis holds the idempotency key of a client. A rehearsal has rehearsalKeyTTL, because its
// keys stay in Redis after its sale is removed.
const (
	clientKeyTTL    = 24 * time.Hour
	rehearsalKeyTTL = 2 * time.Minute
)

const maxRequestID = 128

// requestKey returns the key by which Redis recognizes a repetition of a buyer's request: the client's idempotency key,
// else the request id of the edge, else a random key. A proxy that repeats a request sends the same request id. With a
// random key, only a repetition of the script by the Redis client is recognized. ttl is how long Redis holds the key;
// 0: Redis stores it with the order.
func requestKey(idempotency, requestID string) (key string, ttl time.Duration) {
	switch {
	case idempotency != "":
		return "k:" + idempotency, clientKeyTTL
	case validRequestID(requestID):
		return "r:" + requestID, 0
	}
	return "x:" + rand.Text(), 0
}

func validRequestID(id string) bool {
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, unprintable)
}
