package token

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"sluice/internal/strictjson"
)

// claims are the claims used for verification. Times are in Unix seconds. notBefore is 0 if it is missing; the others
// are required.
type claims struct {
	subject            string
	expires, notBefore float64
}

// Expect are the values that claims must have. Empty ones are not checked.
type Expect struct {
	Issuer   string // iss
	Audience string // aud, or an element of it
}

var (
	errIssuer   = errors.New("iss is not the expected issuer")
	errAudience = errors.New("aud does not include the expected audience")
)

// check verifies the claims of a token.
func (e Expect) check(object map[string]any) error {
	if e.Issuer != "" && object["iss"] != e.Issuer {
		return errIssuer
	}
	if e.Audience == "" || object["aud"] == e.Audience {
		return nil
	}
	if list, ok := object["aud"].([]any); !ok || !slices.Contains(list, any(e.Audience)) {
		return errAudience
	}
	return nil
}

// claims decodes the second segment of a token. fast permits the fast path.
func (d *scratch) claims(segment string, fast bool, expect Expect) (claims, error) {
	var err error
	if d.text, err = decodeStrictly(d.text[:0], segment); err != nil {
		return claims{}, err
	}
	if fast && expect == (Expect{}) {
		if c, ok := plainClaims(d.text); ok {
			return c, nil
		}
	}
	return strictClaims(d.text, expect)
}

func strictClaims(text []byte, expect Expect) (claims, error) {
	object, err := strictjson.Object(text)
	if err != nil {
		return claims{}, err
	}
	if err := expect.check(object); err != nil {
		return claims{}, err
	}
	var c claims
	var ok bool
	if c.subject, ok = object["sub"].(string); !ok || c.subject == "" || len(c.subject) > MaxSubject ||
		strings.IndexFunc(c.subject, unicode.IsControl) >= 0 {
		return claims{}, errors.New("sub is not text of 1 to 255 bytes without control characters")
	}
	if _, has := object["exp"]; !has {
		return claims{}, errors.New("exp is missing")
	}
	var issued float64
	for _, t := range [...]struct {
		name string
		to   *float64
	}{{"exp", &c.expires}, {"nbf", &c.notBefore}, {"iat", &issued}} {
		if err := timeOf(object, t.name, t.to); err != nil {
			return claims{}, err
		}
	}
	return c, nil
}

// maxTime is the limit of times, as in lua/edge/sluice/token/claims.lua: larger integers are not exact in floating
// point.
const maxTime = 1 << 53

// timeOf reads a time in seconds, which must be a number. If it is missing, to is not changed.
func timeOf(object map[string]any, name string, to *float64) error {
	v, has := object[name]
	if !has {
		return nil
	}
	number, ok := v.(json.Number)
	if !ok {
		return errors.New(name + " is not a number")
	}
	seconds, err := number.Float64()
	if err != nil || seconds < 0 || seconds >= maxTime {
		return errors.New(name + " is out of range")
	}
	*to = seconds
	return nil
}

// maxDate is the end of the year 9999. Later times, which may not fit an integer, are replaced by it.
const maxDate = 253402300799

func date(seconds float64) time.Time {
	return time.UnixMilli(int64(min(seconds, maxDate) * 1000))
}
