// Package page provides rendered HTML pages and the static files that they load, for the buyer's pages and the admin
// console. It does not depend on an HTTP library.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
)

// Page is a rendered page with its response headers. Its bytes must not change.
type Page struct {
	Body    []byte
	Gzip    []byte // Body, compressed; nil: the page is not sent compressed
	Headers []Header
}

// Header is a response header.
type Header struct{ Name, Value string }

// Asset is a static file. Its URL contains the hash of its content, so browsers may cache it forever.
type Asset struct {
	Type string
	Body []byte
	Gzip []byte // Body, compressed

	Exact bool // the requested URL has this hash; otherwise it names another version, and the response must not be cached

	url string // its name in URLs
}

// Assets holds the files of some pages. The zero value is empty. It is safe for concurrent use after the last Add.
type Assets struct{ byName map[string]Asset }

// Add adds a file with a name of lower-case letters such as sale.js, and returns its name in URLs: sale.HASH.js.
func (a *Assets) Add(name, mime string, body []byte) (url string) {
	if a.byName == nil {
		a.byName = map[string]Asset{}
	}
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	url = fmt.Sprintf("%s.%x%s", strings.TrimSuffix(name, ext), sum[:6], ext)
	a.byName[name] = Asset{Type: mime, Body: body, Gzip: Compress(body), url: url}
	return url
}

// Find returns a file by its name in URLs. For the name of another version it returns this version, because during an
// upgrade a page may load files from a server of the other version.
func (a *Assets) Find(url string) (Asset, bool) {
	m := hashed.FindStringSubmatch(url)
	if m == nil {
		return Asset{}, false
	}
	found, ok := a.byName[m[1]+m[2]]
	found.Exact = found.url == url
	return found, ok
}

// hashed matches a name of lower-case letters with the hash of any version.
var hashed = regexp.MustCompile(`^([a-z]+)\.[0-9a-f]{12}(\.[a-z]+)$`)

// Compress returns a body for clients that accept gzip.
func Compress(body []byte) []byte {
	var packed bytes.Buffer
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(&packed)
	_, _ = w.Write(body) // a Buffer has no write errors
	_ = w.Close()
	return packed.Bytes()
}

// compressors are reused, because each takes 800 KB.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// StyleHash returns the source of an inlined style for a Content-Security-Policy.
func StyleHash(style []byte) string {
	hash := sha256.Sum256(style)
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// Script joins script files into one script with a scope of its own.
func Script(files fs.FS, names ...string) ([]byte, error) {
	var script bytes.Buffer
	script.WriteString("(() => {\n'use strict';\n")
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		script.Write(text)
	}
	script.WriteString("})();\n")
	return script.Bytes(), nil
}
