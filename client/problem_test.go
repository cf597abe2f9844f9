package client

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"sluice/docs"
	"sluice/internal/openapi"
)

func TestEveryDocumentedCodeHasAConstant(t *testing.T) {
	d, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	documented := d.At("components", "schemas", "Problem", "properties", "code", "enum").Strings()
	constants := declaredCodes(t)
	if len(documented) == 0 || len(constants) == 0 {
		t.Fatalf("found %d documented codes and %d constants", len(documented), len(constants))
	}
	for _, code := range documented {
		if !slices.Contains(constants, code) {
			t.Errorf("problem.go has no constant of the code %s of docs/openapi.yaml", code)
		}
	}
	for _, code := range constants {
		if !slices.Contains(documented, code) {
			t.Errorf("docs/openapi.yaml does not document the code %s of problem.go", code)
		}
	}
}

// declaredCodes returns the values of the constants of type Code in problem.go.
func declaredCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for node := range ast.Preorder(file) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			continue
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Code" {
			continue
		}
		for _, value := range spec.Values {
			code, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
		}
	}
	return codes
}
