// Package apidocs renders an OpenAPI document as an HTML page. The page is self-contained: it loads nothing from other
// hosts and needs no scripts. Package openapi reads the document.
package apidocs

import (
	"embed"
	"fmt"

	"sluice/backend/web/page"
	"sluice/internal/htmltemplate"
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
	t, err := htmltemplate.Parse(files, "page.html", functions)
	if err != nil {
		return Page{}, fmt.Errorf("apidocs: %w", err)
	}
	html, err := t.Execute("page.html", newView(doc, source, htmltemplate.CSS(style)))
	if err != nil {
		return Page{}, fmt.Errorf("apidocs: %w", err)
	}
	return Page{
		HTML: html, Gzip: page.Compress(html),
		Policy: "default-src 'none'; style-src " + page.StyleHash(style) +
			"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}, nil
}
