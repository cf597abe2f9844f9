package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// maxDepth is how deep a header or claims may nest, as in lua/edge/sluice/json.lua.
const maxDepth = 8

var errStrict = errors.New("not a JSON object, or one that two readers could understand differently")

// readObject reads a JSON object the way the Lua edge does. encoding/json alone would take "SUB" for "sub", let the last of two equal names win,
// and mend bytes that are not UTF-8 and surrogates without their other half: then the edge would limit one buyer, and the backend sell to another.
func readObject(text []byte) (map[string]any, error) {
	if !utf8.Valid(text) || !surrogatesPaired(text) {
		return nil, errStrict
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 1)
	if err != nil {
		return nil, errStrict
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

// surrogatesPaired tells whether each \u escape of half a character is followed by the other half. JSON has backslashes in strings only, so it need
// not know where those are.
func surrogatesPaired(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		code, ok := escapedUnit(text[i:])
		switch {
		case !ok:
			i++ // another escape, or none: the reader will see
		case code < 0xD800 || code > 0xDFFF:
			i += 5
		default:
			low, ok := escapedUnit(text[min(i+6, len(text)):])
			if code >= 0xDC00 || !ok || low < 0xDC00 || low > 0xDFFF {
				return false
			}
			i += 11
		}
	}
	return true
}

// escapedUnit is the UTF-16 unit of a \u escape at the start of text.
func escapedUnit(text []byte) (code uint64, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return code, err == nil
}
