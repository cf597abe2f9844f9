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

// New renders a document. The page links to source, the URL of the document.
func New(doc *openapi.Document, source string) (page.Page, error) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		return page.Page{}, err
	}
	t, err := htmltemplate.Parse(files, "page.html", functions)
	if err != nil {
		return page.Page{}, fmt.Errorf("apidocs: %w", err)
	}
	html, err := t.Execute("page.html", newView(doc, source, htmltemplate.CSS(style)))
	if err != nil {
		return page.Page{}, fmt.Errorf("apidocs: %w", err)
	}
	policy := "default-src 'none'; style-src " + page.StyleHash(style) +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return page.Page{Body: html, Gzip: page.Compress(html), Headers: []page.Header{
		{Name: "Content-Security-Policy", Value: policy},
		{Name: "X-Content-Type-Options", Value: "nosniff"},
		{Name: "X-Frame-Options", Value: "DENY"},
		{Name: "Referrer-Policy", Value: "no-referrer"},
	}}, nil
}
