package token

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"

	"sluice/internal/strictjson"
)

// claims are what is read of a payload; times are seconds since 1970. notBefore is 0 when it is not there; the others must be.
type claims struct {
	subject            string
	expires, notBefore float64
}

// claims reads the second segment.
func (d *desk) claims(segment string, quickly bool) (claims, error) {
	var err error
	if d.text, err = decodeStrictly(d.text[:0], segment); err != nil {
		return claims{}, err
	}
	if quickly {
		if c, ok := plainClaims(d.text); ok {
			return c, nil
		}
	}
	return strictClaims(d.text)
}

func strictClaims(text []byte) (claims, error) {
	object, err := strictjson.Object(text)
	if err != nil {
		return claims{}, err
	}
	var c claims
	var ok bool
	if c.subject, ok = object["sub"].(string); !ok || c.subject == "" || len(c.subject) > MaxSubject || strings.IndexFunc(c.subject, unicode.IsControl) >= 0 {
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

// never is where the times end, as in lua/edge/sluice/token.lua: beyond 2^53 neighbouring whole numbers run together.
const never = 1 << 53

// timeOf is a time in seconds, which is a number and nothing else; one that is absent leaves to as it is.
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
	if err != nil || seconds < 0 || seconds >= never {
		return errors.New(name + " is out of range")
	}
	*to = seconds
	return nil
}

// latest is the end of the year 9999: a later time means never, and a far later one does not fit an integer.
const latest = 253402300799

func date(seconds float64) time.Time {
	return time.UnixMilli(int64(min(seconds, latest) * 1000))
}
