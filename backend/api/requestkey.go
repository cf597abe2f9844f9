package api

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// How long Redis remembers a request, so that a replay finds its order: replays by the client, and replays by a proxy
// or the Redis client.
const (
	clientKeyTTL  = 24 * time.Hour
	requestKeyTTL = 2 * time.Minute
)

const maxRequestID = 128

// requestKey identifies one request of a buyer for deduplication in Redis: by the client's idempotency key, else by the
// request id of the edge, else by a random key, which only the Redis client replays.
func requestKey(idempotency, requestID string) (key string, ttl time.Duration) {
	switch {
	case idempotency != "":
		return "k:" + idempotency, clientKeyTTL
	case validRequestID(requestID):
		return "r:" + requestID, requestKeyTTL
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return "x:" + hex.EncodeToString(b[:]), requestKeyTTL
}

func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}
