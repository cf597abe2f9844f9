// Package clients tests that client generators accept docs/openapi.yaml: redocly lints it, oapi-codegen and
// openapi-typescript generate a client from it, and each client buys from a running sluice. `make clients` runs all of
// it. The generated files are in generated/ and are not committed.
//
// The test of the Go client needs the generated package, so it has the build tag "generated".
package clients

//go:generate npm run --silent generate
//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../docs/openapi.yaml
