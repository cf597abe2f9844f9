package notify

import (
	"crypto/ecdh"
	"encoding/base64"
	"strings"

	"sluice/backend/sale"
)

// Bounds of subscriptions.
const (
	MaxSubscriptions = 5    // of one buyer; the oldest are deleted
	maxEndpoint      = 2000 // bytes; those of the known push services have 150 to 1000
	authLen          = 16   // bytes (RFC 8291, section 3.2)
)

// CheckSubscription validates a subscription that a browser sent, and normalizes its keys and language. checkURL
// validates the endpoint. The error is a *sale.InvalidError that lists every invalid field.
func CheckSubscription(p Subscription, checkURL func(string) error) (Subscription, error) {
	bad := &sale.InvalidError{}
	if p.Endpoint == "" || len(p.Endpoint) > maxEndpoint {
		bad.Add("endpoint", "must be an https URL of at most 2000 bytes")
	} else if err := checkURL(p.Endpoint); err != nil {
		bad.Add("endpoint", err.Error())
	}
	key, err := decodeKey(p.P256dh)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(key)
	}
	if err != nil {
		bad.Add("keys.p256dh", "must be a point of the curve P-256 in base64url, as PushSubscription.toJSON returns it")
	}
	auth, err := decodeKey(p.Auth)
	if err != nil || len(auth) != authLen {
		bad.Add("keys.auth", "must be 16 bytes in base64url, as PushSubscription.toJSON returns it")
	}
	lang, ok := parseLang(p.Lang)
	if !ok {
		bad.Add("lang", "must be en or zh")
	}
	if len(bad.Fields) > 0 {
		return Subscription{}, bad
	}
	p.P256dh, p.Auth = base64.RawURLEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(auth)
	p.Lang = string(lang)
	return p, nil
}

// decodeKey decodes base64url with or without padding.
func decodeKey(s string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
}
