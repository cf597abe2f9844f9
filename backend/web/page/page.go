// Package page provides rendered HTML pages and the static files that they load, for the buyer's pages and the admin
// console. It does not depend on an HTTP library.
package page

// Page is a rendered page with its response headers. Its bytes must not change.
type Page struct {
	Body    []byte
	Gzip    []byte // Body, compressed; nil: the page is not sent compressed
	Headers []Header
}

// Header is a response header.
type Header struct{ Name, Value string }
