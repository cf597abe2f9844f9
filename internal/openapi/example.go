package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Example is what stands for a parameter or a schema: its example, the first of its examples, or its schema's. It does not exist where there is none.
func (v Value) Example() Value {
	if e := v.Get("example"); e.Exists() {
		return e
	}
	for e := range v.Get("examples").Items() {
		return e
	}
	for _, e := range v.Get("examples").Fields() {
		return e.Get("value")
	}
	if schema := v.Get("schema"); schema.Exists() {
		return schema.Example()
	}
	return Value{}
}

// Request is an operation as one would ask for it, made of the document's examples.
type Request struct {
	Method, Path string      // with the query
	Header       [][2]string // in the document's order; without the token
	Body         []byte      // JSON, nil for none
}

// Request fills in what the document has examples for: parameters in the path, and others where the example stands beside the parameter itself rather than at its
// schema, which says what it may be and not that it is useful here. The error names a parameter that must be there and has none.
func (o Operation) Request() (Request, error) {
	r := Request{Method: o.Method, Path: o.Path}
	query := url.Values{}
	for _, p := range o.Parameters() {
		name, in, required := p.Get("name").Text(), p.Get("in").Text(), p.Get("required").Is()
		example := p.Get("example")
		if !example.Exists() && required {
			example = p.Example()
		}
		switch {
		case !example.Exists() && required:
			return r, fmt.Errorf("openapi: %s %s: the parameter %s has no example", o.Method, o.Path, name)
		case !example.Exists():
		case in == "path":
			r.Path = strings.ReplaceAll(r.Path, "{"+name+"}", url.PathEscape(example.Text()))
		case in == "query":
			query.Set(name, example.Text())
		case in == "header":
			r.Header = append(r.Header, [2]string{name, example.Text()})
		}
	}
	if len(query) > 0 {
		r.Path += "?" + query.Encode()
	}
	if body := o.Get("requestBody").Get("content").Get("application/json").Example(); body.Exists() {
		r.Header = append(r.Header, [2]string{"Content-Type", "application/json"})
		r.Body = body.JSON()
	}
	return r, nil
}

// JSON is the place as JSON, its members in the document's order.
func (v Value) JSON() []byte {
	var b bytes.Buffer
	writeJSON(&b, v.node)
	return b.Bytes()
}

func writeJSON(b *bytes.Buffer, n *yaml.Node) {
	n = behind(n)
	switch {
	case n == nil:
		b.WriteString("null")
	case n.Kind == yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			name, _ := json.Marshal(n.Content[i].Value) // a string always can be
			b.Write(append(name, ':'))
			writeJSON(b, n.Content[i+1])
		}
		b.WriteByte('}')
	case n.Kind == yaml.SequenceNode:
		b.WriteByte('[')
		for i, child := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, child)
		}
		b.WriteByte(']')
	default:
		var scalar any
		text := []byte("null")
		if n.Decode(&scalar) == nil {
			if s, err := json.Marshal(scalar); err == nil {
				text = s
			}
		}
		b.Write(text)
	}
}
