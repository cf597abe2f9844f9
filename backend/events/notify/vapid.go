package notify

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
)

// Key is the key pair by which push services know this shop (VAPID, RFC 8292). The zero value is no key.
type Key struct{ private, public string }

// ErrBadKey says that a text is no key.
var ErrBadKey = errors.New("must be a P-256 private key of 32 bytes in base64url, as sluice group vapid makes one")

// NewKey makes a key.
func NewKey() (Key, error) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	return keyOf(k), nil
}

// ParseKey reads what Private returns. Error: ErrBadKey.
func ParseKey(private string) (Key, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(private)
	if err != nil {
		return Key{}, ErrBadKey
	}
	k, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return Key{}, ErrBadKey
	}
	if key := keyOf(k); key.private == private { // the decoder forgives line ends
		return key, nil
	}
	return Key{}, ErrBadKey
}

func keyOf(k *ecdh.PrivateKey) Key {
	return Key{base64.RawURLEncoding.EncodeToString(k.Bytes()), base64.RawURLEncoding.EncodeToString(k.PublicKey().Bytes())}
}

// Private is the secret half.
func (k Key) Private() string { return k.private }

// Public is what browsers subscribe with (applicationServerKey). "" for the zero value.
func (k Key) Public() string { return k.public }

// IsZero tells that there is no key.
func (k Key) IsZero() bool { return k.private == "" }
