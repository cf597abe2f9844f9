package notify

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
)

// Key is the key pair that identifies the shop to push services (VAPID, RFC 8292). The zero value is no key.
type Key struct{ private, public string }

// ErrBadKey means that a text is not a private key.
var ErrBadKey = errors.New("must be a P-256 private key of 32 bytes in base64url, as sluice group vapid creates one")

// NewKey generates a key.
func NewKey() (Key, error) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	return keyOf(k), nil
}

// ParseKey parses the result of Private. Error: ErrBadKey.
func ParseKey(private string) (Key, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(private)
	if err != nil {
		return Key{}, ErrBadKey
	}
	k, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return Key{}, ErrBadKey
	}
	if key := keyOf(k); key.private == private { // the decoder ignores line ends
		return key, nil
	}
	return Key{}, ErrBadKey
}

func keyOf(k *ecdh.PrivateKey) Key {
	encode := base64.RawURLEncoding.EncodeToString
	return Key{encode(k.Bytes()), encode(k.PublicKey().Bytes())}
}

// Private returns the private key, a secret.
func (k Key) Private() string { return k.private }

// Public returns the public key, with which browsers subscribe (applicationServerKey). It is "" for the zero value.
func (k Key) Public() string { return k.public }

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.private == "" }
