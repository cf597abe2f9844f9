// Package docs embeds the documents that the program serves.
package docs

import _ "embed"

// OpenAPI is openapi.yaml, which documents the public and the admin listener. Callers must not modify it.
//
//go:embed openapi.yaml
var OpenAPI []byte
