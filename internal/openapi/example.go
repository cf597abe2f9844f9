package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Example returns the example of a parameter or a schema: its own, the first of its examples, or that of its schema.
// Without one, Exists of the result is false.
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

// Request is an example request for an operation, built from the examples of the document.
type Request struct {
	Method, Path string      // Path includes the query
	Header       [][2]string // names and values in the order of the document, without authentication
	Body         []byte      // JSON, nil for none
}

// Request builds an example request. It includes required parameters, and optional parameters with an example of their
// own. The example of its schema is not sufficient to include an optional parameter. It returns an error if a required
// parameter has no example.
func (o Operation) Request() (Request, error) {
	r := Request{Method: o.Method, Path: o.Path}
	query := url.Values{}
	for _, p := range o.Parameters() {
		name, in, required := p.Get("name").String(), p.Get("in").String(), p.Get("required").Is()
		example := p.Get("example")
		if !example.Exists() && required {
			example = p.Example()
		}
		switch {
		case !example.Exists() && required:
			return r, fmt.Errorf("openapi: %s %s: the required parameter %s has no example", o.Method, o.Path, name)
		case !example.Exists():
		case in == "path":
			r.Path = strings.ReplaceAll(r.Path, "{"+name+"}", url.PathEscape(example.String()))
		case in == "query":
			query.Set(name, example.String())
		case in == "header":
			r.Header = append(r.Header, [2]string{name, example.String()})
		}
	}
	if len(query) > 0 {
		r.Path += "?" + query.Encode()
	}
	for mediaType, content := range o.Get("requestBody").Get("content").Fields() {
		body := content.Example()
		switch {
		case !body.Exists():
			continue
		case mediaType == "application/json":
			r.Body = body.JSON()
		default: // the example is the body itself
			r.Body = []byte(body.String())
		}
		r.Header = append(r.Header, [2]string{"Content-Type", mediaType})
		break
	}
	return r, nil
}

// JSON encodes the node as JSON, with fields in the order of the document.
func (v Value) JSON() []byte {
	var b bytes.Buffer
	writeJSON(&b, v.node)
	return b.Bytes()
}

func writeJSON(b *bytes.Buffer, n *yaml.Node) {
	switch {
	case n == nil:
		b.WriteString("null")
	case n.Kind == yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			name, _ := json.Marshal(n.Content[i].Value) // a string has no encoding error
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
