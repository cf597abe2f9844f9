// Package token signs and verifies the JWTs that name a buyer. Verification pins HS256, wants exp and sub, refuses crit, and never tells
// a caller's client why: the error is for logs.
package token

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MinSecret is the least length of a signing secret, in bytes.
const MinSecret = 32

// MaxLen is the longest token that Verify looks at, in bytes.
const MaxLen = 4096

// ErrInvalid is wrapped by every error of Verify.
var ErrInvalid = errors.New("invalid token")

// Key signs and verifies. It is safe for concurrent use; the zero value is not usable.
type Key struct {
	secret  []byte
	parser  *jwt.Parser
	signers *sync.Pool // of *signer
	now     func() time.Time
}

// NewKey makes a key from a secret of at least MinSecret bytes.
func NewKey(secret string) (*Key, error) { return NewKeyAt(secret, time.Now) }

// NewKeyAt is NewKey with a clock of the caller's.
func NewKeyAt(secret string, now func() time.Time) (*Key, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the token secret must have at least %d bytes, and has %d", MinSecret, len(secret))
	}
	return &Key{
		secret:  []byte(secret),
		now:     now,
		signers: newSigners([]byte(secret)),
		parser:  jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired(), jwt.WithTimeFunc(now), jwt.WithStrictDecoding()),
	}, nil
}

// Sign makes a token for the buyer sub that is valid for ttl from now.
func (k *Key) Sign(sub string, ttl time.Duration) (string, error) {
	now := k.now()
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject: sub, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	})
	return t.SignedString(k.secret)
}

// Verify returns the verified subject.
func (k *Key) Verify(raw string) (sub string, err error) {
	sub, _, err = k.VerifyUntil(raw)
	return sub, err
}

// VerifyUntil returns the verified subject and when the token expires, for callers that remember what they have verified.
func (k *Key) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	if len(raw) > MaxLen || strings.Count(raw, ".") != 2 {
		return "", time.Time{}, fmt.Errorf("%w: not three segments of at most %d bytes", ErrInvalid, MaxLen)
	}
	if sub, expires, good, judged := k.plain(raw); good {
		return sub, expires, nil
	} else if judged {
		return "", time.Time{}, fmt.Errorf("%w: the signature is not ours", ErrInvalid)
	}
	return k.parse(raw)
}

// parse verifies any token.
func (k *Key) parse(raw string) (sub string, expires time.Time, err error) {
	var claims claims
	t, err := k.parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) {
		header, _, _ := strings.Cut(raw, ".")
		text, err := base64.RawURLEncoding.Strict().DecodeString(header)
		if err == nil {
			err = checkHeader(text)
		}
		return k.secret, err
	})
	if err != nil || !t.Valid {
		return "", time.Time{}, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	if claims.Subject == "" {
		return "", time.Time{}, fmt.Errorf("%w: no sub", ErrInvalid)
	}
	return claims.Subject, date(*claims.ExpiresAt), nil // the parser wants exp
}

// claims are what Verify reads. Times are numbers and nothing else: the library's own type takes strings as well.
type claims struct {
	Subject                        string
	ExpiresAt, NotBefore, IssuedAt *float64
}

// GetExpirationTime implements jwt.Claims, as do the others below.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return numeric(c.ExpiresAt), nil }

func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return numeric(c.NotBefore), nil }

func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return numeric(c.IssuedAt), nil }

func (c *claims) GetIssuer() (string, error) { return "", nil }

func (c *claims) GetSubject() (string, error) { return c.Subject, nil }

func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }

// latest is the end of the year 9999: a later time means never, and a far later one does not fit an integer.
const latest = 253402300799

func date(seconds float64) time.Time {
	return time.UnixMilli(int64(max(-latest, min(seconds, latest)) * 1000))
}

func numeric(seconds *float64) *jwt.NumericDate {
	if seconds == nil {
		return nil
	}
	return jwt.NewNumericDate(date(*seconds))
}
