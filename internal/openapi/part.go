package openapi

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Part is the document of some operations only, with what they refer to and nothing else. Its servers are the one it was read from.
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
		var here yaml.Node
		if err := here.Encode([]map[string]string{{"url": "/"}}); err != nil {
			return nil, fmt.Errorf("openapi: %w", err)
		}
		*list = here
	}
	part.dropComponents()
	used := map[string]bool{}
	for op := range part.Operations() {
		for _, tag := range op.Get("tags").Texts() {
			used[tag] = true
		}
	}
	if tags := field(root, "tags"); tags != nil {
		tags.Content = slices.DeleteFunc(tags.Content, func(tag *yaml.Node) bool { name := field(tag, "name"); return name == nil || !used[name.Value] })
	}
	return part, nil
}

// dropComponents drops those that nothing refers to, until what is left needs all the rest.
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

// references notes the target of every reference below a place.
func references(n *yaml.Node, found map[string]bool) {
	if ref := field(n, "$ref"); ref != nil {
		found[ref.Value] = true
	}
	for _, child := range n.Content {
		references(child, found)
	}
}

// prune takes members out of a mapping.
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

// copyOf copies a place with all below it; aliases become what they stand for, since their anchors may be taken out.
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

// YAML is the document as text.
func (d *Document) YAML() ([]byte, error) {
	text, err := yaml.Dump(d.root, yaml.V4, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return text, nil
}
