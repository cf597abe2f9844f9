package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"sync"
	"time"
)

// plainHeader is the first segment of nearly every token: {"alg":"HS256","typ":"JWT"}, as Sign and most libraries write it, and the dot.
const plainHeader = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."

// signatureLen is an HMAC-SHA256 in unpadded base64url.
const signatureLen = 43

// plain judges tokens of the plainest form, which the general parser takes about ten times as long for: the header is plainHeader, and the claims are
// sub, exp, nbf and iat, each at most once, without spaces, escapes or fractions. raw has three segments.
//
// What it judges good or bad, the parser judges alike. Everything else is left to it: judged is false.
func (k *Key) plain(raw string) (sub string, expires time.Time, good, judged bool) {
	end := len(raw) - signatureLen - 1
	if end < len(plainHeader) || raw[end] != '.' || raw[:len(plainHeader)] != plainHeader {
		return "", time.Time{}, false, false
	}
	s, _ := k.signers.Get().(*signer)
	defer k.signers.Put(s)
	if !s.signed(raw[:end], raw[end+1:]) {
		return "", time.Time{}, false, true
	}
	sub, exp, nbf, ok := s.claims(raw[len(plainHeader):end])
	now := k.now()
	if !ok || !now.Before(time.Unix(exp, 0)) || now.Before(time.Unix(nbf, 0)) {
		return "", time.Time{}, false, false
	}
	return sub, time.Unix(exp, 0), true, true
}

// signer is what one verification at a time needs.
type signer struct {
	mac  hash.Hash
	text []byte
	sum  [sha256.Size]byte
	made [signatureLen]byte
}

func newSigners(secret []byte) *sync.Pool {
	return &sync.Pool{New: func() any { return &signer{mac: hmac.New(sha256.New, secret)} }}
}

// signed compares the texts of the signatures and not their bytes: of several spellings only the canonical one is taken.
func (s *signer) signed(text, signature string) bool {
	s.text = append(append(s.text[:0], text...), signature...)
	s.mac.Reset()
	s.mac.Write(s.text[:len(text)])
	base64.RawURLEncoding.Encode(s.made[:], s.mac.Sum(s.sum[:0]))
	return subtle.ConstantTimeCompare(s.made[:], s.text[len(text):]) == 1
}

var strict = base64.RawURLEncoding.Strict()

// claims reads the second segment. nbf is 0 when it is not there; sub and exp must be.
func (s *signer) claims(segment string) (sub string, exp, nbf int64, ok bool) {
	s.text = append(s.text[:0], segment...)
	n, err := strict.Decode(s.text, s.text) // in place: what is written is always behind what is read
	if err != nil || n == 0 || s.text[0] != '{' {
		return "", 0, 0, false
	}
	var seen [4]bool
	for rest := s.text[1:n]; ; rest = rest[1:] {
		const name = len(`"sub":`)
		if len(rest) <= name || rest[0] != '"' || rest[4] != '"' || rest[5] != ':' {
			return "", 0, 0, false
		}
		var which int
		switch string(rest[1:4]) {
		case "sub":
			which = 0
			sub, rest, ok = plainText(rest[name:])
		case "exp":
			which = 1
			exp, rest, ok = plainNumber(rest[name:])
		case "nbf":
			which = 2
			nbf, rest, ok = plainNumber(rest[name:])
		case "iat":
			which = 3
			_, rest, ok = plainNumber(rest[name:])
		default:
			return "", 0, 0, false
		}
		if !ok || seen[which] || len(rest) == 0 {
			return "", 0, 0, false
		}
		seen[which] = true
		switch rest[0] {
		case '}':
			return sub, exp, nbf, len(rest) == 1 && sub != "" && seen[1]
		case ',':
		default:
			return "", 0, 0, false
		}
	}
}

// plainText reads a JSON string of printable ASCII without escapes.
func plainText(b []byte) (text string, rest []byte, ok bool) {
	if b[0] != '"' {
		return "", nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return string(b[1:i]), b[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return "", nil, false
		}
	}
	return "", nil, false
}

// plainNumber reads a whole number of at most eleven digits.
func plainNumber(b []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && i < 12 && '0' <= b[i] && b[i] <= '9'; i++ {
		n = 10*n + int64(b[i]-'0')
	}
	return n, b[i:], i > 0 && i < 12 && (b[0] != '0' || i == 1)
}
