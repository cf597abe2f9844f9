package openapi

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Part returns a copy of the document with the operations that keep selects, and only the components and tags that they
// use. Its server is "/", the address that serves the document.
func (d *Document) Part(keep func(method, path string) bool) (*Document, error) {
	root := copyOf(d.root)
	part := &Document{root}
	prune(field(root, "paths"), func(path string, item *yaml.Node) bool {
		kept := 0
		prune(item, func(name string, _ *yaml.Node) bool {
			if !slices.Contains(methods, name) {
				return true
			}
			if keep(strings.ToUpper(name), path) {
				kept++
				return true
			}
			return false
		})
		return kept > 0
	})
	if list := field(root, "servers"); list != nil {
		var server yaml.Node
		if err := server.Encode([]map[string]string{{"url": "/"}}); err != nil {
			return nil, fmt.Errorf("openapi: %w", err)
		}
		*list = server
	}
	part.dropComponents()
	used := map[string]bool{}
	for op := range part.Operations() {
		for _, tag := range op.Get("tags").Texts() {
			used[tag] = true
		}
	}
	if tags := field(root, "tags"); tags != nil {
		tags.Content = slices.DeleteFunc(tags.Content, func(tag *yaml.Node) bool {
			name := field(tag, "name")
			return name == nil || !used[name.Value]
		})
	}
	return part, nil
}

// dropComponents removes unreferenced components, until every component is referenced.
func (d *Document) dropComponents() {
	components := field(d.root, "components")
	for {
		needed := map[string]bool{}
		references(d.root, needed)
		for op := range d.Operations() {
			for requirement := range op.Get("security").Items() {
				for scheme := range requirement.Fields() {
					needed["#/components/securitySchemes/"+scheme] = true
				}
			}
		}
		dropped := false
		prune(components, func(kind string, list *yaml.Node) bool {
			prune(list, func(name string, _ *yaml.Node) bool {
				if needed["#/components/"+kind+"/"+name] {
					return true
				}
				dropped = true
				return false
			})
			return len(list.Content) > 0
		})
		if !dropped {
			return
		}
	}
}

// references adds the target of every reference below a node to found.
func references(n *yaml.Node, found map[string]bool) {
	if ref := field(n, "$ref"); ref != nil {
		found[ref.Value] = true
	}
	for _, child := range n.Content {
		references(child, found)
	}
}

// prune removes the fields that keep rejects from a mapping.
func prune(n *yaml.Node, keep func(name string, value *yaml.Node) bool) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if keep(n.Content[i].Value, n.Content[i+1]) {
			kept = append(kept, n.Content[i], n.Content[i+1])
		}
	}
	n.Content = kept
}

// copyOf returns a deep copy of a node. It replaces aliases with copies of their targets, because pruning may remove an
// anchor.
func copyOf(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := *n
	c.Anchor, c.Alias, c.Content = "", nil, make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = copyOf(child)
	}
	return &c
}

// YAML encodes the document.
func (d *Document) YAML() ([]byte, error) {
	text, err := yaml.Dump(d.root, yaml.V4, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return text, nil
}
