package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"sluice/backend/sale"
	"sluice/internal/strictjson"
)

// Object is the JSON object of a request body. Its methods take one field each: they remove it and return its value, or
// record why it is rejected. Take each field at most once, call RejectUnknown, then Err.
type Object struct {
	path   string // prefix of field names in errors: "" or "price."
	fields map[string]any
	bad    *sale.InvalidError
}

// gzipHeader begins a body with Content-Encoding: gzip. Some HTTP libraries compress bodies by default.
var gzipHeader = []byte{0x1f, 0x8b}

// ParseObject reads one JSON object under the rules of package strictjson. The error is a *sale.InvalidError about
// the field "body".
func ParseObject(body []byte) (*Object, error) {
	if bytes.HasPrefix(body, gzipHeader) {
		return nil, sale.Invalid("body", "must not be compressed")
	}
	fields, err := strictjson.Object(body)
	if invalid, ok := errors.AsType[*strictjson.Error](err); ok {
		return nil, sale.Invalid("body", invalid.Detail)
	}
	return &Object{fields: fields, bad: new(sale.InvalidError)}, nil
}

// ReadObject reads the body of a request. A request without a body returns an empty object.
func ReadObject(c *fiber.Ctx) (*Object, error) {
	body := c.Context().Request.Body()
	if len(body) == 0 {
		return &Object{bad: new(sale.InvalidError)}, nil
	}
	if err := CheckJSON(c.Context().Request.Header.ContentType()); err != nil {
		return nil, err
	}
	return ParseObject(body)
}

// CheckJSON returns an error if a content type is not application/json.
func CheckJSON(contentType []byte) error {
	media, _, _ := strings.Cut(utils.UnsafeString(contentType), ";")
	if !strings.EqualFold(strings.TrimSpace(media), fiber.MIMEApplicationJSON) {
		return sale.Invalid("Content-Type", "must be application/json")
	}
	return nil
}

// Has reports whether a field is present and was not taken yet.
func (o *Object) Has(name string) bool {
	_, present := o.fields[name]
	return present
}

// Skip takes a field and ignores its value.
func (o *Object) Skip(name string) { delete(o.fields, name) }

func (o *Object) take(name string) (v any, present bool) {
	v, present = o.fields[name]
	delete(o.fields, name)
	return v, present
}

// takeAs takes a value that is decoded as a T. It rejects other values with the detail. ok is false if the field is
// absent or rejected.
func takeAs[T any](o *Object, name, detail string) (v T, ok bool) {
	raw, present := o.take(name)
	if v, ok = raw.(T); present && !ok {
		o.Reject(name, detail)
	}
	return v, ok
}

// Reject records the error of a field. The text continues a sentence that begins with the field's name.
func (o *Object) Reject(name, detail string) { o.bad.Add(o.path+name, detail) }

// Require rejects the named fields that are absent. It is called before they are taken.
func (o *Object) Require(names ...string) {
	for _, name := range names {
		if !o.Has(name) {
			o.RejectOnce(name, "must be set")
		}
	}
}

// RejectOnce is Reject for a field that was not rejected yet.
func (o *Object) RejectOnce(name, detail string) {
	if !o.Rejected(name) {
		o.Reject(name, detail)
	}
}

// Rejected reports whether a field, or the object that contains it, was rejected.
func (o *Object) Rejected(name string) bool {
	return slices.ContainsFunc(o.bad.Fields, func(f sale.FieldError) bool {
		return f.Field == o.path+name || f.Field+"." == o.path
	})
}

// Merge adds the fields of a *sale.InvalidError that were not rejected yet, and whose parent was not rejected yet. It
// ignores other errors.
func (o *Object) Merge(err error) {
	invalid, ok := errors.AsType[*sale.InvalidError](err)
	if !ok {
		return
	}
	before := slices.Clone(o.bad.Fields)
	for _, f := range invalid.Fields {
		parent, _, _ := strings.Cut(f.Field, ".")
		if !slices.ContainsFunc(before, func(k sale.FieldError) bool { return k.Field == f.Field || k.Field == parent }) {
			o.bad.Fields = append(o.bad.Fields, f)
		}
	}
}

// RejectUnknown rejects every field that was not taken.
func (o *Object) RejectUnknown() { o.rejectUnknown("field") }

func (o *Object) rejectUnknown(what string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.Reject(strings.Trim(strictjson.QuoteName(name), `"`), "is not a known "+what)
	}
}

// Err returns a *sale.InvalidError with all rejected fields, or nil.
func (o *Object) Err() error { return o.bad.Err() }

// Text takes a string. It returns "" if the field is absent or rejected.
func (o *Object) Text(name string) string {
	s, _ := takeAs[string](o, name, "must be a string")
	return s
}

// Sale takes the id of a sale. It returns "" if the field is absent or rejected. An empty id is rejected.
func (o *Object) Sale(name string) string {
	if !o.Has(name) {
		return ""
	}
	id := o.Text(name)
	if err := sale.ValidateID(id); err != nil {
		o.RejectOnce(name, err.Error())
		return ""
	}
	return id
}

// maxLine bounds reasons, notes and search texts, in bytes.
const maxLine = 200

// Line takes a string of at most 200 bytes without control characters.
func (o *Object) Line(name string) string {
	text := o.Text(name)
	if len(text) > maxLine || !IsStorable(text) || strings.ContainsFunc(text, unicode.IsControl) {
		o.Reject(name, "must be at most 200 bytes of text without control characters")
	}
	return text
}

// IsStorable reports whether SQL can store a text. PostgreSQL rejects other texts even in a WHERE clause.
func IsStorable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// Texts takes a list of strings.
func (o *Object) Texts(name string) (items []string, present bool) {
	v, present := o.take(name)
	if !present {
		return nil, false
	}
	raw, ok := v.([]any)
	for _, item := range raw {
		text, isText := item.(string)
		items, ok = append(items, text), ok && isText
	}
	if !ok {
		o.Reject(name, "must be a list of strings")
	}
	return items, true
}

// Integer takes a whole number without fraction or exponent that fits 63 bits. ok is false if the field is absent or
// rejected.
func (o *Object) Integer(name string) (n int64, ok bool) {
	number, ok := takeAs[json.Number](o, name, "must be a whole number")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		o.Reject(name, "is out of range")
	case err != nil:
		o.Reject(name, "must be a whole number without fraction or exponent")
	}
	return n, err == nil
}

// Bool takes true or false. An absent field is false.
func (o *Object) Bool(name string) bool {
	yes, _ := takeAs[bool](o, name, "must be true or false")
	return yes
}

// endOfTime bounds times from above, because RFC 3339 ends with the year 9999. The lower bound is sale.Epoch, where
// order ids begin.
var endOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Time takes an RFC 3339 time between 2020 and 9999, truncated to the millisecond, in UTC. An absent field and null
// are the zero time.
func (o *Object) Time(name string) time.Time {
	v, present := o.take(name)
	if !present || v == nil {
		return time.Time{}
	}
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		o.Reject(name, "must be a time such as 2026-11-27T10:00:00Z")
		return time.Time{}
	}
	t = t.UTC().Truncate(time.Millisecond)
	if t.Before(sale.Epoch) || !t.Before(endOfTime) {
		o.Reject(name, "must be between the years 2020 and 9999")
		return time.Time{}
	}
	return t
}

// Duration takes a duration such as 15m or 1h30m. ok is false if the field is absent, null or rejected.
func (o *Object) Duration(name string) (d time.Duration, ok bool) {
	v, present := o.take(name)
	if !present || v == nil {
		return 0, false
	}
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil {
		o.Reject(name, "must be a duration such as 15m or 1h30m")
	}
	return d, err == nil
}

// Child takes an object. Errors of its fields are recorded in o. An absent field is an empty object.
func (o *Object) Child(name string) *Object {
	fields, _ := takeAs[map[string]any](o, name, "must be an object")
	return &Object{path: o.path + name + ".", fields: fields, bad: o.bad}
}
