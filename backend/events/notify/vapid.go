package notify

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"

	webpush "github.com/SherClockHolmes/webpush-go"
)

// Key is the key pair that identifies the shop to push services (VAPID, RFC 8292), in base64url. Private is a secret.
// Browsers subscribe with Public (applicationServerKey).
type Key struct{ Private, Public string }

// ErrBadKey means that a text is not a private key.
var ErrBadKey = errors.New("must be a P-256 private key of 32 bytes in base64url, as sluice group vapid creates one")

// NewKey generates a key.
func NewKey() (k Key, err error) {
	k.Private, k.Public, err = webpush.GenerateVAPIDKeys()
	return k, err
}

// ParseKey returns the pair of a private key. Error: ErrBadKey.
func ParseKey(private string) (Key, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(private)
	if err != nil {
		return Key{}, ErrBadKey
	}
	k, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return Key{}, ErrBadKey
	}
	encode := base64.RawURLEncoding.EncodeToString
	key := Key{encode(k.Bytes()), encode(k.PublicKey().Bytes())}
	if key.Private != private { // the decoder ignores line ends
		return Key{}, ErrBadKey
	}
	return key, nil
}
