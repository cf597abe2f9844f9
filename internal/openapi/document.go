// Package openapi reads an OpenAPI 3.1 document for the API reference. It keeps the order of the document, resolves
// references on access, extracts the operations of one listener, and builds example requests. It does not validate the
// document; tests do that with package test/contract. OpenAPI libraries such as kin-openapi lose the order of fields,
// and add several megabytes to the binary.
package openapi

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Document is an OpenAPI document. It is safe for concurrent use, except Keep.
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
	return &Document{expand(file.Content[0])}, nil
}

// expand returns a copy of a node with copies of the targets of its aliases, because Keep may remove an anchor.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := *n
	c.Anchor, c.Content = "", make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = expand(child)
	}
	return &c
}

// fields returns the fields of a mapping in the order of the document. Other nodes have none.
func fields(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for pair := range slices.Chunk(n.Content, 2) {
			if !yield(pair[0].Value, pair[1]) {
				return
			}
		}
	}
}

// field returns a field of a mapping, or nil.
func field(n *yaml.Node, name string) *yaml.Node {
	for key, value := range fields(n) {
		if key == name {
			return value
		}
	}
	return nil
}

// Value is a node of a document. The zero Value does not exist and has no children.
type Value struct {
	doc  *Document
	node *yaml.Node

	// Ref is the last part of the reference to the node, such as "Sale". It is empty without a reference.
	Ref string
}

// At returns the node with a path of names from the root.
func (d *Document) At(names ...string) Value {
	v := d.value(d.root)
	for _, name := range names {
		v = v.Get(name)
	}
	return v
}

// maxHops bounds a chain of references, because references may form a cycle.
const maxHops = 10

// value resolves references. Fields beside a reference are ignored.
func (d *Document) value(n *yaml.Node) Value {
	ref := ""
	for range maxHops {
		link := field(n, "$ref")
		if link == nil {
			return Value{doc: d, node: n, Ref: ref}
		}
		n, ref = d.target(link.Value), path.Base(link.Value)
		if n == nil {
			break
		}
	}
	return Value{}
}

// target returns the node that a reference such as #/components/schemas/Sale names, or nil.
func (d *Document) target(ref string) *yaml.Node {
	n := d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		n = field(n, part)
	}
	return n
}

// Exists reports whether the node exists.
func (v Value) Exists() bool { return v.node != nil }

// Get returns a field of a mapping.
func (v Value) Get(name string) Value {
	if child := field(v.node, name); child != nil {
		return v.doc.value(child)
	}
	return Value{}
}

// Fields returns the fields of a mapping in the order of the document.
func (v Value) Fields() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for name, n := range fields(v.node) {
			if !yield(name, v.doc.value(n)) {
				return
			}
		}
	}
}

// Items returns the items of a list.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if !v.IsList() {
			return
		}
		for _, n := range v.node.Content {
			if !yield(v.doc.value(n)) {
				return
			}
		}
	}
}

// String returns the text of a scalar, or "".
func (v Value) String() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.Value
}

// Is reports whether the node is the scalar true.
func (v Value) Is() bool { return v.String() == "true" }

// IsList reports whether the node is a list.
func (v Value) IsList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// Strings returns the scalars of a list.
func (v Value) Strings() []string {
	var all []string
	for item := range v.Items() {
		all = append(all, item.String())
	}
	return all
}

// Operation is one method of one path.
type Operation struct {
	Method string // in upper case
	Path   string // such as /v1/sales/{sale}, or the name of a webhook
	Value
	item Value
}

// methods are the fields of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// Operations returns the operations of all paths in the order of the document.
func (d *Document) Operations() iter.Seq[Operation] { return d.operations("paths") }

// Webhooks returns the requests that the server sends, in the order of the document. Their Path is the name of the
// webhook.
func (d *Document) Webhooks() iter.Seq[Operation] { return d.operations("webhooks") }

func (d *Document) operations(of string) iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		for at, item := range d.At(of).Fields() {
			for name, v := range item.Fields() {
				isMethod := slices.Contains(methods, name)
				if isMethod && !yield(Operation{strings.ToUpper(name), at, v, item}) {
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
