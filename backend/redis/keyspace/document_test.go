package keyspace

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/keys.md lists every key of this package with its type, and no other.
func TestDocumentHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| `(sluice:[^`]+)` \\| ([a-z ]+) \\| \\S")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		listed[row[1]] = row[2]
	}
	known := keysOfTheCode(t)
	for key, kind := range known {
		if listed[key] != kind {
			t.Errorf("docs/keys.md: type of %s is %q, want %q", key, listed[key], kind)
		}
	}
	for key := range listed {
		if known[key] == "" {
			t.Errorf("docs/keys.md lists %s, which is not a key", key)
		}
	}
	if len(known) < 25 {
		t.Errorf("only %d keys were found in the code", len(known))
	}
}

// keysOfTheCode calls each method that names a key, with the names of its parameters. The type is part of its comment.
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
		if !ok || f.Recv == nil || !f.Name.IsExported() ||
			slices.Contains([]string{"ShardOf", "All", "Dead"}, f.Name.Name) {
			continue
		}
		receiver := map[string]reflect.Value{
			"Space": reflect.ValueOf(Space{}), "Shard": reflect.ValueOf(Shard(0)), "Dead": reflect.ValueOf(Dead(0)),
		}[f.Recv.List[0].Type.(*ast.Ident).Name]
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
		kind := "copy" // its type is that of the source
		if m := comment.FindStringSubmatch(f.Doc.Text()); m != nil {
			kind = m[1]
		}
		keys[key] = kind
	}
	return keys
}
