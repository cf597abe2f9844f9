// Package payment verifies that a callback comes from the payment provider. The scheme is Standard Webhooks
// (www.standardwebhooks.com): an HMAC-SHA256 over the callback's id, its timestamp in seconds and its body. The package
// does not parse the body and does not detect repeated ids; see store.Store.Pay.
package payment

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Tolerance is the maximum difference between the timestamp of a callback and the current time, in either direction. It
// limits how long a recorded callback can be replayed.
const Tolerance = 5 * time.Minute

// Limits of a secret in bytes, as in Standard Webhooks, and of the headers.
const (
	minSecret    = 24
	maxSecret    = 64
	maxID        = 255
	maxSignature = 2048 // about forty signatures; a provider that rotates its secret sends two
)

const secretPrefix = "whsec_"

// Errors of Verify.
var (
	ErrID        = errors.New("the id is invalid")
	ErrTimestamp = errors.New("the timestamp is not a number of seconds")
	ErrForged    = errors.New("the signature is invalid")
	ErrStale     = errors.New("the timestamp is too old or in the future")
)

// Verifier verifies callbacks with the secrets shared with the provider. It is safe for concurrent use.
type Verifier struct {
	secrets []*standardwebhooks.Webhook
	now     func() time.Time
}

// NewVerifier returns a Verifier for one or more secrets, separated by spaces or commas, each "whsec_" and 24 to 64
// bytes in base64. A signature by any of them is valid. To rotate a secret, add the new one, let the provider sign with
// it, and remove the old one. The error does not contain a secret.
func NewVerifier(secrets string, now func() time.Time) (*Verifier, error) {
	v := &Verifier{now: now}
	separator := func(r rune) bool { return strings.ContainsRune(" ,\n\t", r) }
	for i, secret := range strings.FieldsFunc(secrets, separator) {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
			return nil, fmt.Errorf("secret %d must be %s followed by %d to %d bytes in base64 "+
				"(generate them with openssl rand -base64 32)", i+1, secretPrefix, minSecret, maxSecret)
		}
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("secret %d cannot be used", i+1)
		}
		v.secrets = append(v.secrets, hook)
	}
	if len(v.secrets) == 0 {
		return nil, errors.New("contains no secret")
	}
	return v, nil
}

// Verify verifies the headers webhook-id, webhook-timestamp and webhook-signature of a callback with its body. It
// returns ErrID or ErrTimestamp for a header that no valid callback has, whatever its signature, ErrForged, or ErrStale
// if the signature is valid and the timestamp is outside the Tolerance.
func (v *Verifier) Verify(id, timestamp, signature string, body []byte) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != timestamp { // only the canonical form, because the number is signed
		return ErrTimestamp
	}
	if !validID(id) {
		return ErrID
	}
	if len(signature) > maxSignature {
		return ErrForged
	}
	headers := http.Header{}
	headers.Set(standardwebhooks.HeaderWebhookID, id)
	headers.Set(standardwebhooks.HeaderWebhookTimestamp, timestamp)
	headers.Set(standardwebhooks.HeaderWebhookSignature, signature)
	genuine := false
	for _, secret := range v.secrets {
		// All secrets are tried, so that the duration does not reveal which one matched.
		genuine = secret.VerifyIgnoringTimestamp(body, headers) == nil || genuine
	}
	if !genuine {
		return ErrForged
	}
	if age := v.now().Unix() - seconds; age > int64(Tolerance/time.Second) || age < -int64(Tolerance/time.Second) {
		return ErrStale
	}
	return nil
}

// validID reports whether id has 1 to 255 printable ASCII characters without a full stop. With a full stop, two
// different callbacks could have the same signature: id "a.1" at 2 with the body "x", and id "a" at 1 with the body
// "2.x".
func validID(id string) bool {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '.' }
	return id != "" && len(id) <= maxID && strings.IndexFunc(id, bad) < 0
}
