package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/backend/sale"
)

// maxDepth is how deep a request body may nest. No body of this API needs more than two levels.
const maxDepth = 8

// object is a JSON object that was read strictly, with the mistakes found while its fields are taken out. Take each field at
// most once and then call unknown: every field that nobody took is a mistake too.
type object struct {
	path   string // prefix of its fields' names in errors: "" or "price."
	fields map[string]any
	bad    *sale.InvalidError
}

// readObject reads one JSON object, and nothing behind it. It refuses what lenient readers let pass: a name used twice (two
// readers would pick different values), nesting beyond maxDepth, invalid UTF-8, anything but white space after the object.
// Numbers stay text until somebody asks for an integer. The error is a *sale.InvalidError about the field "body".
func readObject(body []byte) (*object, error) {
	fail := func(detail string) (*object, error) {
		return nil, &sale.InvalidError{Fields: []sale.FieldError{{Field: "body", Detail: detail}}}
	}
	if !utf8.Valid(body) {
		return fail("must be UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := readValue(d, 0)
	if errors.Is(err, errStrict) {
		return fail(strings.TrimPrefix(err.Error(), errStrict.Error()+": "))
	}
	if err != nil {
		return fail("must be one JSON object")
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return fail("must be one JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail("must hold nothing after the JSON object")
	}
	return &object{fields: fields, bad: new(sale.InvalidError)}, nil
}

// errStrict marks what encoding/json would have accepted; its text is for the client.
var errStrict = errors.New("strict")

func readValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: must not nest deeper than %d levels", errStrict, maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return readMembers(d, depth)
	case json.Delim('['):
		var list []any
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
	return t, nil
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
			return nil, errors.New("a name must be a string")
		}
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("%w: repeats the name %s", errStrict, shorten(name))
		}
		if members[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return members, err
}

// shorten quotes a name for an error message and bounds it.
func shorten(name string) string {
	const most = 40
	if len(name) > most {
		cut := most
		for !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "..."
	}
	return strconv.Quote(name)
}

func (o *object) take(name string) (v any, present bool) {
	v, present = o.fields[name]
	delete(o.fields, name)
	return v, present
}

func (o *object) mistake(name, detail string) { o.bad.Add(o.path+name, detail) }

// text takes a string; an absent one is "" (and so is a mistaken one: the mistake is noted).
func (o *object) text(name string) string {
	v, present := o.take(name)
	if !present {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		o.mistake(name, "must be a string")
	}
	return s
}

// integer takes a whole number in JSON's plain form (no fraction, no exponent) that fits 63 bits; ok is false when it is absent
// or mistaken.
func (o *object) integer(name string) (n int64, ok bool) {
	v, present := o.take(name)
	if !present {
		return 0, false
	}
	number, isNumber := v.(json.Number)
	if !isNumber {
		o.mistake(name, "must be a whole number")
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		o.mistake(name, "is out of range")
	case err != nil:
		o.mistake(name, "must be a whole number without fraction or exponent")
	}
	return n, err == nil
}

// flag takes true or false; an absent one is false.
func (o *object) flag(name string) bool {
	v, present := o.take(name)
	yes, ok := v.(bool)
	if present && !ok {
		o.mistake(name, "must be true or false")
	}
	return yes
}

// Times outside these years are taken for mistakes: order ids begin at sale.Epoch, and RFC 3339 ends with 9999.
var latest = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// instant takes an RFC 3339 time, cut to the millisecond, in UTC. An absent one, and null, is the zero time.
func (o *object) instant(name string) time.Time {
	v, present := o.take(name)
	if !present || v == nil {
		return time.Time{}
	}
	s, ok := v.(string)
	if !ok {
		o.mistake(name, "must be a time like 2026-11-27T10:00:00Z")
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		o.mistake(name, "must be a time like 2026-11-27T10:00:00Z")
		return time.Time{}
	}
	t = t.UTC().Truncate(time.Millisecond)
	if t.Before(sale.Epoch) || !t.Before(latest) {
		o.mistake(name, "must lie between the years 2020 and 9999")
		return time.Time{}
	}
	return t
}

// duration takes a length of time such as 15m or 1h30m; an absent one, and null, is 0.
func (o *object) duration(name string) time.Duration {
	v, present := o.take(name)
	if !present || v == nil {
		return 0
	}
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil {
		o.mistake(name, "must be a length of time such as 15m or 1h30m")
	}
	return d
}

// durationText writes a length of time as object.duration reads it, without the zeros that time.Duration has at its end.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// child takes an object; an absent one is empty. Its mistakes are noted in o.
func (o *object) child(name string) *object {
	c := &object{path: o.path + name + ".", bad: o.bad}
	v, present := o.take(name)
	if !present {
		return c
	}
	fields, ok := v.(map[string]any)
	if !ok {
		o.mistake(name, "must be an object")
	}
	c.fields = fields
	return c
}

// unknown notes every field that nobody has taken.
func (o *object) unknown() {
	for name := range o.fields {
		o.mistake(strings.Trim(shorten(name), `"`), "is not known here")
	}
}

// err is the *sale.InvalidError with all mistakes, or nil.
func (o *object) err() error {
	if len(o.bad.Fields) == 0 {
		return nil
	}
	return o.bad
}
