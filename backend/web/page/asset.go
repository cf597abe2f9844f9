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

// Asset is a static file. Its URL contains the hash of its content, so browsers may cache it forever.
type Asset struct {
	Type string
	Body []byte
	Gzip []byte // Body, compressed

	Exact bool // the requested URL has this hash; otherwise it names another version, and the response must not be cached
}

// Assets holds the files of some pages. The zero value is empty. It is safe for concurrent use after the last Add.
type Assets struct {
	byURL map[string]Asset
	urls  map[string]string // file name to URL
}

// Add adds a file with a name such as sale.js, and returns its name in URLs: sale.HASH.js.
func (a *Assets) Add(name, mime string, body []byte) (url string) {
	if a.byURL == nil {
		a.byURL, a.urls = map[string]Asset{}, map[string]string{}
	}
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	url = fmt.Sprintf("%s.%x%s", strings.TrimSuffix(name, ext), sum[:6], ext)
	a.urls[name] = url
	a.byURL[url] = Asset{Type: mime, Body: body, Gzip: Compress(body)}
	return url
}

// All returns all files by their names in URLs.
func (a *Assets) All() map[string]Asset { return a.byURL }

// Find returns a file by its name in URLs. For the name of another version it returns this version, because during an
// upgrade a page may load files from a server of the other version.
func (a *Assets) Find(url string) (Asset, bool) {
	if found, ok := a.byURL[url]; ok {
		found.Exact = true
		return found, true
	}
	if m := hashed.FindStringSubmatch(url); m != nil {
		found, ok := a.byURL[a.urls[m[1]+m[2]]]
		return found, ok
	}
	return Asset{}, false
}

// hashed matches a name with the hash of any version.
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
