package replay

import (
	"bytes"
	"unsafe"

	"github.com/valyala/fastjson"
	"github.com/valyala/fastjson/fastfloat"
)

// record contains the fields of a JSON line. Missing texts are nil.
type record struct {
	time, seconds float64 // 0 if missing
	client        []byte
	buyer         []byte
	method, path  []byte
	verdict       []byte
	upstream      []byte
	status        int

	numbers uint8 // bit set of the numbers that scan has found
}

// scan parses a line in the form in which edges write almost all lines: a flat object without white space or escapes.
// For other lines it returns false, and read must be used. scan needs a quarter of the time.
func (r *record) scan(line []byte) bool {
	*r = record{}
	last := len(line) - 1
	if last < 1 || line[0] != '{' || line[last] != '}' || bytes.IndexByte(line, '\\') >= 0 {
		return false
	}
	for i := 1; ; i++ {
		if i >= last || line[i] != '"' {
			return false
		}
		end := bytes.IndexByte(line[i+1:last], '"')
		if end < 0 {
			return false
		}
		name := line[i+1 : i+1+end]
		if i += end + 2; i+1 >= last || line[i] != ':' {
			return false
		}
		i++
		if line[i] == '"' {
			if end = bytes.IndexByte(line[i+1:last], '"'); end < 0 {
				return false
			}
			if !r.text(name, line[i+1:i+1+end]) {
				return false
			}
			i += end + 2
		} else {
			end = i
			for end < last && plainDigit(line[end]) {
				end++
			}
			if end == i || !r.number(name, line[i:end]) {
				return false
			}
			i = end
		}
		if i == last {
			return true
		}
		if line[i] != ',' {
			return false
		}
	}
}

func plainDigit(c byte) bool { return '0' <= c && c <= '9' || c == '.' }

// text stores a text field. It returns false if the field is repeated, or must be a number.
func (r *record) text(name, value []byte) bool {
	var at *[]byte
	switch string(name) {
	case "client":
		at = &r.client
	case "buyer":
		at = &r.buyer
	case "method":
		at = &r.method
	case "path":
		at = &r.path
	case "verdict":
		at = &r.verdict
	case "upstream":
		at = &r.upstream
	case "time", "seconds", "status":
		return false
	default:
		return true
	}
	if *at != nil {
		return false
	}
	*at = value
	return true
}

// number stores a number field. It returns false if the field is repeated, or must be a text.
func (r *record) number(name, digits []byte) bool {
	value := unsafe.String(unsafe.SliceData(digits), len(digits)) // not retained
	var err error
	bit := uint8(0)
	switch string(name) {
	case "time":
		bit = 1
		r.time, err = fastfloat.Parse(value)
	case "seconds":
		bit = 2
		r.seconds, err = fastfloat.Parse(value)
	case "status":
		bit = 4
		r.status = int(fastfloat.ParseInt64BestEffort(value))
	case "client", "buyer", "method", "path", "verdict", "upstream":
		return false
	}
	twice := r.numbers&bit != 0
	r.numbers |= bit
	return err == nil && !twice
}

// read parses any JSON line. Its slices are valid until p is used again.
func (r *record) read(p *fastjson.Parser, line []byte) error {
	*r = record{}
	v, err := p.ParseBytes(line)
	if err != nil {
		return errJSON
	}
	if r.time, err = number(v, "time"); err != nil {
		return errTime
	}
	if r.seconds, err = number(v, "seconds"); err != nil {
		return errSpan
	}
	r.client, r.buyer = v.GetStringBytes("client"), v.GetStringBytes("buyer")
	r.method, r.path = v.GetStringBytes("method"), v.GetStringBytes("path")
	r.verdict, r.upstream, r.status = v.GetStringBytes("verdict"), v.GetStringBytes("upstream"), v.GetInt("status")
	return nil
}

// number returns a number field, or 0 if there is none.
func number(v *fastjson.Value, name string) (float64, error) {
	field := v.Get(name)
	if field == nil {
		return 0, nil
	}
	return field.Float64()
}
