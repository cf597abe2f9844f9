// Package reference makes a page for people of an OpenAPI document. The page is made on the server, asks no other host for anything, and needs no script.
package apidocs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"

	"sluice/internal/openapi"
)

//go:embed page.html page.css
var files embed.FS

// Page is what New has made. Nobody may change its bytes.
type Page struct {
	HTML, Gzip []byte // Gzip is the same, compressed
	Policy     string // its Content-Security-Policy
}

// New makes the page of a document that is answered at source, a URL.
func New(doc *openapi.Document, source string) (Page, error) {
	style, err := files.ReadFile("page.css")
	if err != nil {
		return Page{}, err
	}
	t, err := template.New("page.html").ParseFS(files, "page.html")
	if err != nil {
		return Page{}, fmt.Errorf("reference: %w", err)
	}
	var html bytes.Buffer
	if err := t.Execute(&html, viewOf(doc, template.CSS(style), source)); err != nil { //nolint:gosec // our own file
		return Page{}, fmt.Errorf("reference: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(html.Bytes()); err != nil {
		return Page{}, fmt.Errorf("reference: %w", err)
	}
	if err := w.Close(); err != nil {
		return Page{}, fmt.Errorf("reference: %w", err)
	}
	hash := sha256.Sum256(style)
	return Page{
		HTML: html.Bytes(), Gzip: packed.Bytes(),
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}, nil
}
