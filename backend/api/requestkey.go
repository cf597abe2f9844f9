package api

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"
)

// How long Redis remembers a request, so that its repetition finds its own order: what a client repeats on purpose, and what
// a proxy or the Redis client repeats by itself.
const (
	clientKeyTTL  = 24 * time.Hour
	requestKeyTTL = 2 * time.Minute
)

const (
	maxIdempotencyKey = 255
	maxRequestID      = 128
)

// idempotencyKey reads the Idempotency-Key header; "" when the client sent none.
func idempotencyKey(h *fasthttp.RequestHeader) (string, error) {
	given := h.PeekAll("Idempotency-Key")
	switch len(given) {
	case 0:
		return "", nil
	case 1:
		key, err := parseIdempotencyKey(utils.UnsafeString(given[0]))
		if err != nil {
			return "", mistake("Idempotency-Key", err.Error())
		}
		return key, nil
	}
	return "", mistake("Idempotency-Key", "must be sent once")
}

var errIdempotencyKey = errors.New(`must be 1 to 255 printable ASCII characters, best in quotes: "8e03978e-40d5"`)

// parseIdempotencyKey reads the value of an Idempotency-Key header: a structured-field string ("abc", with \" and \\ inside),
// or, as many clients send it, the bare characters without quotes. Parameters, lists and empty keys are refused. The key is
// always a copy: it does not share memory with v.
func parseIdempotencyKey(v string) (string, error) {
	v = strings.Trim(v, " \t")
	if !strings.HasPrefix(v, `"`) {
		return parseBareKey(v)
	}
	var key strings.Builder
	for i := 1; i < len(v); i++ {
		c := v[i]
		switch {
		case c == '"':
			if i != len(v)-1 || key.Len() == 0 || key.Len() > maxIdempotencyKey {
				return "", errIdempotencyKey
			}
			return key.String(), nil
		case c == '\\':
			i++
			if i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", errIdempotencyKey
			}
			key.WriteByte(v[i])
		case c < ' ' || c > '~':
			return "", errIdempotencyKey
		default:
			key.WriteByte(c)
		}
	}
	return "", errIdempotencyKey
}

func parseBareKey(v string) (string, error) {
	if v == "" || len(v) > maxIdempotencyKey {
		return "", errIdempotencyKey
	}
	for i := 0; i < len(v); i++ {
		// Space, quote, backslash, comma and semicolon would make a list, a parameter or a broken string of it.
		if c := v[i]; c <= ' ' || c > '~' || strings.IndexByte("\"\\,;", c) >= 0 {
			return "", errIdempotencyKey
		}
	}
	return strings.Clone(v), nil
}

// requestKey names one request of a buyer for the deduplication in Redis.
type requestKey struct {
	key string
	ttl time.Duration
}

// keyOf picks the request's key: the client's own (idempotency is its parsed key, "" if it sent none), else the id its edge
// gave it, else one that nobody can repeat but the Redis client.
func keyOf(idempotency, requestID string) requestKey {
	switch {
	case idempotency != "":
		return requestKey{"k:" + idempotency, clientKeyTTL}
	case validRequestID(requestID):
		return requestKey{"r:" + requestID, requestKeyTTL}
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return requestKey{"x:" + hex.EncodeToString(b[:]), requestKeyTTL}
}

func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := 0; i < len(id); i++ {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}
