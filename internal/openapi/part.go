package openapi

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Keep removes the operations that keep does not select, the webhooks that have no tag of a selected operation, and the
// components and tags that only they use. The server of the document becomes "/", the server that serves the document.
func (d *Document) Keep(keep func(method, path string) bool) {
	pruneOperations(field(d.root, "paths"), func(path, name string, _ *yaml.Node) bool {
		return keep(strings.ToUpper(name), path)
	})
	if servers := field(d.root, "servers"); servers != nil {
		url := []*yaml.Node{{Kind: yaml.ScalarNode, Value: "url"}, {Kind: yaml.ScalarNode, Value: "/"}}
		servers.Content = []*yaml.Node{{Kind: yaml.MappingNode, Content: url}}
	}
	used := map[string]bool{} // names of tags, and pointers to components
	for op := range d.Operations() {
		for _, tag := range op.Get("tags").Strings() {
			used[tag] = true
		}
		for requirement := range op.Get("security").Items() {
			for scheme := range requirement.Fields() {
				used["#/components/securitySchemes/"+scheme] = true
			}
		}
	}
	pruneOperations(field(d.root, "webhooks"), func(_, _ string, op *yaml.Node) bool {
		return slices.ContainsFunc(d.value(op).Get("tags").Strings(), func(tag string) bool { return used[tag] })
	})
	prune(d.root, func(name string, v *yaml.Node) bool { return name != "webhooks" || len(v.Content) > 0 })
	d.references(field(d.root, "paths"), used)
	d.references(field(d.root, "webhooks"), used)
	prune(field(d.root, "components"), func(kind string, list *yaml.Node) bool {
		prune(list, func(name string, _ *yaml.Node) bool { return used["#/components/"+kind+"/"+name] })
		return len(list.Content) > 0
	})
	if tags := field(d.root, "tags"); tags != nil {
		tags.Content = slices.DeleteFunc(tags.Content, func(tag *yaml.Node) bool {
			name := field(tag, "name")
			return name == nil || !used[name.Value]
		})
	}
}

// pruneOperations removes the operations that keep rejects from paths or webhooks, and the paths without operations.
func pruneOperations(items *yaml.Node, keep func(path, name string, op *yaml.Node) bool) {
	prune(items, func(path string, item *yaml.Node) bool {
		kept := false
		prune(item, func(name string, op *yaml.Node) bool {
			if !slices.Contains(methods, name) {
				return true
			}
			selected := keep(path, name, op)
			kept = kept || selected
			return selected
		})
		return kept
	})
}

// references adds all references below a node to found, directly or through other references.
func (d *Document) references(n *yaml.Node, found map[string]bool) {
	if n == nil {
		return
	}
	if ref := field(n, "$ref"); ref != nil && !found[ref.Value] {
		found[ref.Value] = true
		d.references(d.target(ref.Value), found)
	}
	for _, child := range n.Content {
		d.references(child, found)
	}
}

// prune removes the fields that keep rejects from a mapping.
func prune(n *yaml.Node, keep func(name string, value *yaml.Node) bool) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	pairs := slices.DeleteFunc(slices.Collect(slices.Chunk(n.Content, 2)), func(pair []*yaml.Node) bool {
		return !keep(pair[0].Value, pair[1])
	})
	n.Content = slices.Concat(pairs...)
}

// YAML encodes the document.
func (d *Document) YAML() ([]byte, error) {
	text, err := yaml.Dump(d.root, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return text, nil
}
