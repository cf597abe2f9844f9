package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep a header or claims may nest, as in lua/edge/sluice/json.lua.
const maxDepth = 8

var errStrict = errors.New("what two readers could understand differently")

// readObject reads a JSON object the way the Lua edge does. encoding/json alone would take "SUB" for "sub", let the last of two equal names win,
// and mend bytes that are not UTF-8: then the edge would limit one buyer, and the backend sell to another.
func readObject(text []byte) (map[string]any, error) {
	if !utf8.Valid(text) {
		return nil, errStrict
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 1)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errStrict
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errStrict
	}
	return object, nil
}

func readValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if number, ok := t.(json.Number); ok {
		if _, err := number.Float64(); err != nil {
			return nil, errStrict
		}
	}
	if _, nested := t.(json.Delim); !nested {
		return t, nil
	}
	if depth > maxDepth {
		return nil, errStrict
	}
	if t == json.Delim('[') {
		for d.More() {
			if _, err := readValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return []any{}, err // no claim that is read is a list
	}
	object := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if _, twice := object[name]; !ok || twice {
			return nil, errStrict
		}
		if object[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return object, err
}

// checkHeader wants what the Lua edge wants of a header; the parser has seen to alg.
func checkHeader(text []byte) error {
	header, err := readObject(text)
	if err != nil {
		return err
	}
	for _, name := range [...]string{"crit", "enc"} {
		if _, has := header[name]; has {
			return errors.New(name + " is not supported")
		}
	}
	if typ, has := header["typ"]; has {
		if s, ok := typ.(string); !ok || !strings.EqualFold(s, "jwt") {
			return errors.New("typ is not JWT")
		}
	}
	return nil
}

// never is where the times end, as in lua/edge/sluice/token.lua: beyond 2^53 neighbouring whole numbers run together.
const never = 1 << 53

// timeOf is a time in seconds, which is a number and nothing else; nil if it is absent.
func timeOf(object map[string]any, name string) (*float64, error) {
	v, has := object[name]
	if !has {
		return nil, nil
	}
	number, ok := v.(json.Number)
	if !ok {
		return nil, errors.New(name + " is not a number")
	}
	seconds, err := number.Float64()
	if err != nil || seconds < 0 || seconds >= never {
		return nil, errors.New(name + " is out of range")
	}
	return &seconds, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(text []byte) error {
	object, err := readObject(text)
	if err != nil {
		return err
	}
	subject, ok := object["sub"].(string)
	if !ok || strings.ContainsRune(subject, utf8.RuneError) { // a surrogate without its other half becomes one: many names would be the same
		return errors.New("sub is not text")
	}
	c.Subject = subject
	for _, t := range [...]struct {
		name string
		to   **float64
	}{{"exp", &c.ExpiresAt}, {"nbf", &c.NotBefore}, {"iat", &c.IssuedAt}} {
		if *t.to, err = timeOf(object, t.name); err != nil {
			return err
		}
	}
	return nil
}
