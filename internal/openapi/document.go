// Package openapi reads an OpenAPI 3.1 document for the API reference. It keeps the order of the document, resolves
// references on access, extracts the operations of one listener, and builds example requests. It does not validate the
// document; tests do that with package test/contract. OpenAPI libraries such as kin-openapi lose the order of fields,
// and would add several megabytes to the binary.
package openapi

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Document is an OpenAPI document. It is immutable and safe for concurrent use.
type Document struct{ root *yaml.Node }

// Parse parses YAML or JSON.
func Parse(text []byte) (*Document, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	if len(file.Content) != 1 || file.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("openapi: the document must be a mapping")
	}
	return &Document{file.Content[0]}, nil
}

// Value is a node of a document. The zero Value does not exist and has no children.
type Value struct {
	doc  *Document
	node *yaml.Node

	// Pointer is the JSON pointer of the node, with references resolved: "/components/schemas/Sale".
	Pointer string
	// Ref is the last part of the reference to the node, such as "Sale". It is empty without a reference.
	Ref string
}

// At returns the node with a path of names from the root.
func (d *Document) At(names ...string) Value {
	v := d.value(d.root, "")
	for _, name := range names {
		v = v.Get(name)
	}
	return v
}

// maxHops bounds a chain of references, because references may form a cycle.
const maxHops = 10

// value resolves an alias and references. Fields beside a reference are ignored.
func (d *Document) value(n *yaml.Node, pointer string) Value {
	ref := ""
	for range maxHops {
		n = resolve(n)
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
			n = field(resolve(n), ref)
		}
		if n == nil {
			return Value{}
		}
	}
	return Value{}
}

// resolve returns the target of an alias, and any other node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// field returns a field of a mapping, or nil.
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

// Exists reports whether the node exists.
func (v Value) Exists() bool { return v.node != nil }

// Get returns a field of a mapping.
func (v Value) Get(name string) Value {
	child := field(v.node, name)
	if child == nil {
		return Value{}
	}
	return v.doc.value(child, v.Pointer+"/"+escape.Replace(name))
}

// Fields returns the fields of a mapping in the order of the document.
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

// Items returns the items of a list.
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

// Text returns the text of a scalar, or "".
func (v Value) Text() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.Value
}

// Is reports whether the node is the scalar true.
func (v Value) Is() bool { return v.Text() == "true" }

// IsList reports whether the node is a list.
func (v Value) IsList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// Texts returns the scalars of a list.
func (v Value) Texts() []string {
	var all []string
	for item := range v.Items() {
		all = append(all, item.Text())
	}
	return all
}

// Operation is one method of one path.
type Operation struct {
	Method string // in upper case
	Path   string // such as /v1/sales/{sale}
	Value
	item Value
}

// methods are the fields of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Operations returns all operations in the order of the document.
func (d *Document) Operations() iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		for path, item := range d.At("paths").Fields() {
			for name, v := range item.Fields() {
				isMethod := slices.Contains(methods, name)
				if isMethod && !yield(Operation{strings.ToUpper(name), path, v, item}) {
					return
				}
			}
		}
	}
}

// Parameters returns the parameters of the path and of the operation.
func (o Operation) Parameters() []Value {
	return slices.Concat(slices.Collect(o.item.Get("parameters").Items()), slices.Collect(o.Get("parameters").Items()))
}
