// Package notifytest provides the browser's side of Web Push for tests: keys, subscriptions and decryption.
package notifytest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"

	"sluice/backend/events/notify"
)

// Browser holds the keys of a subscribed browser.
type Browser struct {
	Key  *ecdh.PrivateKey
	Auth []byte
}

// NewBrowser generates the keys of a browser.
func NewBrowser() (Browser, error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return Browser{}, err
	}
	b := Browser{key, make([]byte, 16)}
	_, _ = rand.Read(b.Auth)
	return b, nil
}

// Subscription returns the subscription of the browser at an endpoint, without buyer and language.
func (b Browser) Subscription(endpoint string) notify.Subscription {
	return notify.Subscription{
		Endpoint: endpoint, P256dh: base64.RawURLEncoding.EncodeToString(b.Key.PublicKey().Bytes()),
		Auth: base64.RawURLEncoding.EncodeToString(b.Auth),
	}
}

// Payload decrypts the body of a request to the push service, and decodes the JSON object in it.
func (b Browser) Payload(body []byte) (payload map[string]string, err error) {
	text, err := b.Decrypt(body)
	if err == nil {
		err = json.Unmarshal(text, &payload)
	}
	return payload, err
}

// Decrypt implements the receiver's side of RFC 8291, section 3.4, and RFC 8188, section 2.
func (b Browser) Decrypt(body []byte) ([]byte, error) {
	if len(body) < 21 || len(body) < 21+int(body[20]) {
		return nil, errors.New("the header is too short")
	}
	salt, size := body[:16], binary.BigEndian.Uint32(body[16:20])
	sender, text := body[21:21+int(body[20])], body[21+int(body[20]):]
	if len(text) > int(size) {
		return nil, errors.New("the text is longer than its record")
	}
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	secret, err := b.Key.ECDH(public)
	if err != nil {
		return nil, err
	}
	info := "WebPush: info\x00" + string(b.Key.PublicKey().Bytes()) + string(sender)
	ikm, err := hkdf.Key(sha256.New, secret, b.Auth, info, 32)
	if err != nil {
		return nil, err
	}
	cek, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, text, nil)
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(plain, 2) // delimiter of the last record; zeros follow
	if end < 0 || len(bytes.Trim(plain[end+1:], "\x00")) > 0 {
		return nil, errors.New("the record has no delimiter")
	}
	return plain[:end], nil
}
