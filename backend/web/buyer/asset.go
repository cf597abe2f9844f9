package buyer

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Asset is a file that pages name. Its name has the hash of its bytes, so it never changes and may be kept for ever.
type Asset struct {
	Type string
	Body []byte
	Gzip []byte // the same, compressed

	Exact bool // it has the hash that was asked for; else another version's name was, and it must not be kept
}

// Assets are the files of some pages. The zero value has none. Once all are added, it is safe for concurrent use.
type Assets struct {
	byURL map[string]Asset
	urls  map[string]string // file to name in a URL
}

// Add adds a file under a name such as sale.js, and returns its name in a URL, sale.HASH.js.
func (a *Assets) Add(name, mime string, body []byte) (url string, err error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(body); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	if a.byURL == nil {
		a.byURL, a.urls = map[string]Asset{}, map[string]string{}
	}
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	url = fmt.Sprintf("%s.%s%s", strings.TrimSuffix(name, ext), hex.EncodeToString(sum[:6]), ext)
	a.urls[name] = url
	a.byURL[url] = Asset{Type: mime, Body: body, Gzip: packed.Bytes()}
	return url, nil
}

// Find finds a file by its name in a URL. While a new version takes over, a page of one is given the files of the
// other: that is better than none.
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

// hashed is a name with the hash of some version.
var hashed = regexp.MustCompile(`^([a-z]+)\.[0-9a-f]{12}(\.[a-z]+)$`)

// Script joins scripts, each of which is one idea, into the one that a page asks for. Names in them are their own.
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

// Asset finds a file by the last part of its URL, /assets/{name}.
func (p *Pages) Asset(name string) (Asset, bool) { return p.assets.Find(name) }

// scripts become one file, in this order.
var scripts = []string{"page/words.js", "page/clock.js", "page/api.js", "page/buyer.js", "page/live.js", "page/show.js", "page/sale.js"}

func (p *Pages) addAssets() error {
	script, err := Script(files, scripts...)
	if err != nil {
		return err
	}
	icon, err := files.ReadFile("page/icon.svg")
	if err != nil {
		return err
	}
	if p.script, err = p.assets.Add("sale.js", "text/javascript; charset=utf-8", script); err != nil {
		return err
	}
	p.icon, err = p.assets.Add("icon.svg", "image/svg+xml", icon)
	return err
}
