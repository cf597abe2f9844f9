package keyspace

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// docs/keys.md has every key with its type, as this package names them, and no other.
func TestDocumentHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(sluice:[^`]+)` \\| ([a-z ]+) \\| \\S").FindAllStringSubmatch(string(text), -1) {
		listed[row[1]] = row[2]
	}
	known := keysOfTheCode(t)
	for key, kind := range known {
		if listed[key] != kind {
			t.Errorf("docs/keys.md: %s is a %q, want %q", key, listed[key], kind)
		}
	}
	for key := range listed {
		if known[key] == "" {
			t.Errorf("docs/keys.md: there is no key %s", key)
		}
	}
	if len(known) < 25 {
		t.Errorf("only %d keys were found in the code", len(known))
	}
}

// keysOfTheCode calls each method that names a key, with the names of its parameters; the type stands in its comment.
func keysOfTheCode(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "keyspace.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`^\w+ \(([a-z ]+)[,)]`)
	keys := map[string]string{}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil || !f.Name.IsExported() || f.Name.Name == "BatchPrefix" || f.Name.Name == "ShardOf" || f.Name.Name == "All" {
			continue
		}
		receiver := reflect.ValueOf(Shard(0))
		if f.Recv.List[0].Type.(*ast.Ident).Name == "Space" {
			receiver = reflect.ValueOf(Space{})
		}
		var args []reflect.Value
		for _, field := range f.Type.Params.List {
			for _, name := range field.Names {
				args = append(args, reflect.ValueOf("<"+name.Name+">"))
			}
		}
		key := receiver.MethodByName(f.Name.Name).Call(args)[0].String()
		if before, _, isHash := strings.Cut(key, ":dedup:"); isHash {
			key = before + ":dedup:<hash>"
		}
		kind := "copy" // of whatever it is a copy of
		if m := comment.FindStringSubmatch(f.Doc.Text()); m != nil {
			kind = m[1]
		}
		keys[key] = kind
	}
	return keys
}
