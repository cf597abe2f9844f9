// Package payment tells whether a callback comes from the payment provider, by the scheme of Standard Webhooks (www.standardwebhooks.com): an HMAC-SHA256 over
// the callback's id, the second it was sent in, and its text. It does not read the text, and it remembers no ids: see order.Store.Pay.
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

// Tolerance is how far the second of a callback may lie from ours, either way: older ones could be recorded ones that somebody sends again.
const Tolerance = 5 * time.Minute

// Bounds of a secret, in bytes, as Standard Webhooks sets them; and of the headers.
const (
	minSecret    = 24
	maxSecret    = 64
	maxID        = 255
	maxSignature = 2048 // some forty signatures: a provider that changes its secret sends two
)

const secretPrefix = "whsec_"

// Errors of Verify.
var (
	ErrForged = errors.New("the signature is not right")
	ErrStale  = errors.New("signed too long ago, or in the future")
)

// Verifier knows the secrets that are shared with the provider. It is safe for concurrent use.
type Verifier struct {
	secrets []*standardwebhooks.Webhook
	now     func() time.Time
}

// NewVerifier takes one secret or several, separated by spaces or commas, each "whsec_" and 24 to 64 bytes in base64. Every one of them is good: to change a
// secret, add the new one, let the provider sign with it, and take the old one out. The error never holds a secret.
func NewVerifier(secrets string, now func() time.Time) (*Verifier, error) {
	v := &Verifier{now: now}
	for i, secret := range strings.FieldsFunc(secrets, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' }) {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
			return nil, fmt.Errorf("secret %d must be %s and %d to %d bytes in base64 (openssl rand -base64 32 makes some)", i+1, secretPrefix, minSecret, maxSecret)
		}
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("secret %d cannot be used", i+1)
		}
		v.secrets = append(v.secrets, hook)
	}
	if len(v.secrets) == 0 {
		return nil, errors.New("holds no secret")
	}
	return v, nil
}

// Verify checks the headers webhook-id, webhook-timestamp and webhook-signature of a callback against its text. It returns ErrForged, or ErrStale for a
// callback that is genuine and not of these minutes.
func (v *Verifier) Verify(id, timestamp, signature string, body []byte) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != timestamp { // one way to write it, since it is signed as a number
		return ErrForged
	}
	if !validID(id) || len(signature) > maxSignature {
		return ErrForged
	}
	headers := http.Header{}
	headers.Set(standardwebhooks.HeaderWebhookID, id)
	headers.Set(standardwebhooks.HeaderWebhookTimestamp, timestamp)
	headers.Set(standardwebhooks.HeaderWebhookSignature, signature)
	genuine := false
	for _, secret := range v.secrets {
		genuine = secret.VerifyIgnoringTimestamp(body, headers) == nil || genuine // all of them: the time says nothing of which it was
	}
	if !genuine {
		return ErrForged
	}
	if age := v.now().Unix() - seconds; age > int64(Tolerance/time.Second) || age < -int64(Tolerance/time.Second) {
		return ErrStale
	}
	return nil
}

// validID tells whether id can be kept: 1 to 255 printable ASCII characters. A full stop would let two callbacks be signed
// alike: "a.1" sent at 2 with the text "x", and "a" sent at 1 with the text "2.x".
func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] > '~' || id[i] == '.' {
			return false
		}
	}
	return true
}
