// Package apidocs renders an OpenAPI document as an HTML page. The page is self-contained: it loads nothing from other
// hosts and needs no scripts. Package openapi reads the document.
package apidocs

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"

	"sluice/backend/web/page"
	"sluice/internal/openapi"
)

//go:embed page.html page.css
var files embed.FS

// Page is a rendered page. Callers must not modify its bytes.
type Page struct {
	HTML   []byte
	Gzip   []byte // HTML, compressed
	Policy string // Content-Security-Policy
}

// New renders a document. The page links to source, the URL of the document.
func New(doc *openapi.Document, source string) (Page, error) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		return Page{}, err
	}
	t, err := template.New("page.html").Funcs(functions).ParseFS(files, "page.html")
	if err != nil {
		return Page{}, fmt.Errorf("apidocs: %w", err)
	}
	var html bytes.Buffer
	if err := t.Execute(&html, view{doc, source, template.CSS(style)}); err != nil { //nolint:gosec // embedded file
		return Page{}, fmt.Errorf("apidocs: %w", err)
	}
	return Page{
		HTML: html.Bytes(), Gzip: page.Compress(html.Bytes()),
		Policy: "default-src 'none'; style-src " + page.StyleHash(style) +
			"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}, nil
}
