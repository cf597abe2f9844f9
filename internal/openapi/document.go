// Package openapi reads an OpenAPI 3.1 document as it stands: in its order, with references followed where one looks. It does not judge the document; what
// the document says of a request and its answer, test/contract checks.
package openapi

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Document is one document. It is safe for concurrent use; nobody changes it.
type Document struct{ root *yaml.Node }

// Parse reads YAML or JSON. The error says where it cannot be read.
func Parse(text []byte) (*Document, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	if len(file.Content) != 1 || file.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("openapi: the document is no mapping")
	}
	return &Document{file.Content[0]}, nil
}

// Value is a place in a document. The zero value stands for a place that is not there, and so does everything below it.
type Value struct {
	doc  *Document
	node *yaml.Node

	// Pointer is the JSON pointer of the place, behind references: "/components/schemas/Sale".
	Pointer string
	// Ref is the last part of the reference that led here, such as "Sale", and empty where none did.
	Ref string
}

// Root is the whole document.
func (d *Document) Root() Value { return d.value(d.root, "") }

// At follows names from the root.
func (d *Document) At(names ...string) Value {
	v := d.Root()
	for _, name := range names {
		v = v.Get(name)
	}
	return v
}

// mostHops bounds a chain of references, of which one that leads to itself has no end.
const mostHops = 10

// value follows an alias, and references. What stands beside a reference is passed over.
func (d *Document) value(n *yaml.Node, pointer string) Value {
	ref := ""
	for range mostHops {
		n = behind(n)
		link := field(n, "$ref")
		if link == nil || link.Kind != yaml.ScalarNode {
			return Value{doc: d, node: n, Pointer: pointer, Ref: ref}
		}
		path, ok := strings.CutPrefix(link.Value, "#/")
		if !ok {
			return Value{}
		}
		n, pointer = d.root, "/"+path
		for part := range strings.SplitSeq(path, "/") {
			ref = unescape.Replace(part)
			n = field(behind(n), ref)
		}
		if n == nil {
			return Value{}
		}
	}
	return Value{}
}

// behind is what an alias stands for.
func behind(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// field is a member of a mapping, nil where there is none.
func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// Exists says whether the place is there.
func (v Value) Exists() bool { return v.node != nil }

// Get is a member of a mapping.
func (v Value) Get(name string) Value {
	child := field(v.node, name)
	if child == nil {
		return Value{}
	}
	return v.doc.value(child, v.Pointer+"/"+escape.Replace(name))
}

// Fields are the members of a mapping, in the document's order.
func (v Value) Fields() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.node == nil || v.node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			name := v.node.Content[i].Value
			if !yield(name, v.doc.value(v.node.Content[i+1], v.Pointer+"/"+escape.Replace(name))) {
				return
			}
		}
	}
}

// Items are the members of a list.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.node == nil || v.node.Kind != yaml.SequenceNode {
			return
		}
		for i, n := range v.node.Content {
			if !yield(v.doc.value(n, fmt.Sprintf("%s/%d", v.Pointer, i))) {
				return
			}
		}
	}
}

// Text is a scalar as it is written, "" where there is none.
func (v Value) Text() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.Value
}

// Is says whether the place holds the scalar true.
func (v Value) Is() bool { return v.Text() == "true" }

// IsList says whether the place holds a list.
func (v Value) IsList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// Any is the place as encoding/json would give it; numbers may be of any type. It is nil where there is nothing.
func (v Value) Any() any {
	if v.node == nil {
		return nil
	}
	var out any
	if v.node.Decode(&out) != nil {
		return nil
	}
	return out
}

// Texts are the scalars of a list.
func (v Value) Texts() []string {
	var all []string
	for item := range v.Items() {
		all = append(all, item.Text())
	}
	return all
}

// Operation is one method of one path.
type Operation struct {
	Method string // in capitals
	Path   string // such as /v1/sales/{sale}
	Value
	item Value
}

// methods are the members of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Operations are all of them, in the document's order.
func (d *Document) Operations() iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		for path, item := range d.At("paths").Fields() {
			for name, v := range item.Fields() {
				if slices.Contains(methods, name) && !yield(Operation{strings.ToUpper(name), path, v, item}) {
					return
				}
			}
		}
	}
}

// Parameters are the path's and the operation's own.
func (o Operation) Parameters() []Value {
	return slices.Concat(slices.Collect(o.item.Get("parameters").Items()), slices.Collect(o.Get("parameters").Items()))
}
