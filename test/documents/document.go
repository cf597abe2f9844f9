// Package documents reads the Markdown files of the repository for tests: their links, the anchors of their headings,
// and their code. github.com/yuin/goldmark parses them.
package documents

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// Document is one Markdown file.
type Document struct {
	Path    string          // slash-separated, relative to the root of the repository
	Anchors map[string]bool // of the headings, in the form that GitHub and Forgejo generate
	Links   []Text          // targets of links and images
	Code    []Text          // lines of fenced blocks, except blocks of "text"; lines that end in a backslash are joined
	Spans   []Text          // inline code
}

// Text is a part of a document with the number of its line, from 1.
type Text struct {
	Line  int
	Value string
}

// ReadAll reads all Markdown files below root, except those in hidden directories, bin and node_modules. It returns an
// error if there are none.
func ReadAll(root string) ([]Document, error) {
	var docs []Document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ignored := strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules"
		if d.IsDir() && path != root && ignored {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		docs = append(docs, Read(filepath.ToSlash(name), source))
		return nil
	})
	if err == nil && len(docs) == 0 {
		err = fmt.Errorf("documents: no Markdown file below %s", root)
	}
	return docs, err
}

var (
	markdown = goldmark.New(
		goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	)
	attribute = regexp.MustCompile(`\b(?:href|src|srcset)="([^"]+)"`)
)

// Read parses a document.
func Read(path string, source []byte) Document {
	r := reader{source: source, doc: Document{Path: path, Anchors: map[string]bool{}}}
	context := parser.NewContext(parser.WithIDs(anchors{}))
	root := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(context))
	_ = ast.Walk(root, r.visit) // visit returns no errors
	return r.doc
}

type reader struct {
	source []byte
	doc    Document
	offset int // of the latest text, for nodes without a position
}

func (r *reader) visit(node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	if pos := node.Pos(); pos >= 0 {
		r.offset = pos
	}
	switch n := node.(type) {
	case *ast.Heading:
		if id, ok := n.AttributeString("id"); ok {
			r.doc.Anchors[string(id.([]byte))] = true
		}
	case *ast.FencedCodeBlock:
		if string(n.Language(r.source)) != "text" {
			r.addCode(n.Lines())
		}
	case *ast.HTMLBlock:
		r.addAttributes(n.Lines())
	case *ast.RawHTML:
		r.addAttributes(n.Segments)
	case *ast.Link:
		r.doc.Links = append(r.doc.Links, r.at(string(n.Destination)))
	case *ast.Image:
		r.doc.Links = append(r.doc.Links, r.at(string(n.Destination)))
	case *ast.CodeSpan:
		var span strings.Builder
		for child := n.FirstChild(); child != nil; child = child.NextSibling() {
			if t, ok := child.(*ast.Text); ok {
				r.offset = t.Segment.Start
				span.Write(t.Segment.Value(r.source))
			}
		}
		r.doc.Spans = append(r.doc.Spans, r.at(strings.ReplaceAll(span.String(), "\n", " ")))
	}
	return ast.WalkContinue, nil
}

// at returns a value with the line of the current offset.
func (r *reader) at(value string) Text {
	return Text{1 + bytes.Count(r.source[:r.offset], []byte("\n")), value}
}

// addCode adds the lines of a block, and joins lines that end in a backslash.
func (r *reader) addCode(lines *text.Segments) {
	continued := false
	for _, line := range lines.Sliced(0, lines.Len()) {
		r.offset = line.Start
		value, more := strings.CutSuffix(strings.TrimSuffix(string(line.Value(r.source)), "\n"), "\\")
		if continued {
			r.doc.Code[len(r.doc.Code)-1].Value += strings.TrimLeft(value, " \t")
		} else {
			r.doc.Code = append(r.doc.Code, r.at(value))
		}
		continued = more
	}
}

// addAttributes adds the links of HTML elements.
func (r *reader) addAttributes(lines *text.Segments) {
	for _, line := range lines.Sliced(0, lines.Len()) {
		r.offset = line.Start
		for _, found := range attribute.FindAllStringSubmatch(string(line.Value(r.source)), -1) {
			r.doc.Links = append(r.doc.Links, r.at(found[1]))
		}
	}
}

// anchors generates the ids of headings as GitHub does. goldmark's own ids drop letters outside ASCII. The value of an
// id is the number of headings that have it.
type anchors map[string]int

func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, linked.ReplaceAllString(string(value), "$1"))
	n := a[id]
	a[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (a anchors) Put(value []byte) { a[string(value)]++ }

// linked matches a link in the source of a heading; its text is part of the anchor.
var linked = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
