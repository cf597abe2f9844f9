package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// Asset finds a file by the last part of its URL, /assets/{name}. While a new version takes over, a page of one is given the files of the other: that is
// better than none.
func (p *Pages) Asset(name string) (Asset, bool) {
	if a, ok := p.assets[name]; ok {
		a.Exact = true
		return a, true
	}
	if m := hashed.FindStringSubmatch(name); m != nil {
		a, ok := p.assets[p.names[m[1]+m[2]]]
		return a, ok
	}
	return Asset{}, false
}

// hashed is a name with the hash of some version.
var hashed = regexp.MustCompile(`^([a-z]+)\.[0-9a-f]{12}(\.[a-z]+)$`)

// scripts become one file in this order: each is one idea, and a page asks for one.
var scripts = []string{"page/words.js", "page/clock.js", "page/api.js", "page/buyer.js", "page/live.js", "page/show.js", "page/sale.js"}

func (p *Pages) addAssets() error {
	var script bytes.Buffer
	script.WriteString("(() => {\n'use strict';\n")
	for _, name := range scripts {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		script.Write(text)
	}
	script.WriteString("})();\n")
	icon, err := files.ReadFile("page/icon.svg")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, mime string
		body       []byte
	}{{"sale.js", "text/javascript; charset=utf-8", script.Bytes()}, {"icon.svg", "image/svg+xml", icon}} {
		sum := sha256.Sum256(f.body)
		ext := path.Ext(f.name)
		name := fmt.Sprintf("%s.%s%s", strings.TrimSuffix(f.name, ext), hex.EncodeToString(sum[:6]), ext)
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		p.names[f.name] = name
		p.assets[name] = Asset{Type: f.mime, Body: f.body, Gzip: packed.Bytes()}
	}
	return nil
}
