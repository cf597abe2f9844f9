// Package strictjson reads JSON objects that every reader interprets alike. encoding/json matches names without
// regard to case when it fills structs, lets the last of two equal names win, and replaces invalid UTF-8 and unpaired
// surrogates; two readers of such a text may see different values. The Lua edge applies the same rules
// (lua/edge/sluice/json.lua).
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// MaxDepth is how many levels objects and arrays may nest, the outermost object included.
const MaxDepth = 8

// Error states why a text was rejected. Detail continues a sentence that begins with the name of the text: "must be
// UTF-8".
type Error struct{ Detail string }

func (e *Error) Error() string { return "JSON " + e.Detail }

var errNotObject = &Error{"must be one JSON object"}

// Object reads one JSON object. No text may follow it. Numbers are returned as json.Number and fit a float64. Object
// rejects repeated names, nesting beyond MaxDepth, invalid UTF-8 and unpaired surrogates. The error is an *Error.
func Object(text []byte) (map[string]any, error) {
	if !utf8.Valid(text) {
		return nil, &Error{"must be UTF-8"}
	}
	if !surrogatesPaired(text) {
		return nil, &Error{"must not contain half of a surrogate pair"}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 1)
	if strict, ok := errors.AsType[*Error](err); ok {
		return nil, strict
	}
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, errNotObject
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &Error{"must hold nothing after the JSON object"}
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
			return nil, &Error{"contains a number that is out of range"}
		}
	}
	if _, nested := t.(json.Delim); !nested {
		return t, nil
	}
	if depth > MaxDepth {
		return nil, &Error{fmt.Sprintf("must not nest deeper than %d levels", MaxDepth)}
	}
	if t == json.Delim('{') {
		return readMembers(d, depth)
	}
	list := []any{}
	for d.More() {
		v, err := readValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err = d.Token()
	return list, err
}

func readMembers(d *json.Decoder, depth int) (map[string]any, error) {
	members := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok {
			return nil, errNotObject
		}
		if _, repeated := members[name]; repeated {
			return nil, &Error{"repeats the name " + QuoteName(name)}
		}
		if members[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return members, err
}

// QuoteName quotes the name of a member for an error message. It cuts names of more than 40 bytes.
func QuoteName(name string) string {
	const limit = 40
	if len(name) > limit {
		cut := limit
		for !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "..."
	}
	return strconv.Quote(name)
}

var (
	// complete matches a pair of escaped surrogates, and every escape but \u.
	complete  = regexp.MustCompile(`\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)
)

// surrogatesPaired reports whether each \u escape of a high surrogate is followed by one of a low surrogate, and no low
// surrogate stands alone. Backslashes occur only in strings, so the function need not find the strings.
func surrogatesPaired(text []byte) bool {
	return !surrogate.Match(complete.ReplaceAllLiteral(text, []byte{' '}))
}
