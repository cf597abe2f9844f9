// Package docs holds the documents that the program itself shows.
package docs

import _ "embed"

// OpenAPI is openapi.yaml, which documents both listeners. Nobody may change its bytes.
//
//go:embed openapi.yaml
var OpenAPI []byte
