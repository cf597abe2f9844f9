// Package markdown reads what the tests of the documents ask for: the links of a Markdown file, the anchors of its headings, and its code. It knows the
// forms that this repository uses, and renders nothing.
package markdown

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Document is one Markdown file. It is not changed after it was read, so tests may share it.
type Document struct {
	Path    string          // slash-separated, from the root of the repository
	Anchors map[string]bool // of the headings, as forges make them
	Links   []Text          // what links and pictures point to
	Code    []Text          // the lines of fenced blocks but those of "text", joined where they end in a backslash
	Spans   []Text          // code within sentences
}

// Text is a piece of a document and the line it begins in, counted from 1.
type Text struct {
	Line  int
	Value string
}

// ReadAll reads every Markdown file below root but those of hidden folders and of folders that git ignores here.
func ReadAll(root string) ([]Document, error) {
	var docs []Document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		docs = append(docs, Read(filepath.ToSlash(name), string(text)))
		return nil
	})
	if err == nil && len(docs) == 0 {
		err = fmt.Errorf("markdown: no document below %s", root)
	}
	return docs, err
}

var (
	fence     = regexp.MustCompile("^\\s*(```+|~~~+)(.*)")
	heading   = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	span      = regexp.MustCompile("`+[^`]+`+")
	link      = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	linked    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	attribute = regexp.MustCompile(`\b(?:href|src|srcset)="([^"]+)"`)
)

// Read takes a document apart. Every text can be read; what is not Markdown has no links.
func Read(path, text string) Document {
	d := Document{Path: path, Anchors: map[string]bool{}}
	headings := map[string]int{}
	open, output, unfinished := "", false, false // the fence of the block that we are in, whether it is what a program says, whether its last line ended in a backslash
	for i, line := range strings.Split(text, "\n") {
		switch mark := fence.FindStringSubmatch(line); {
		case open != "" && mark != nil && strings.HasPrefix(mark[1], open):
			open, unfinished = "", false
		case open != "" && output:
		case open != "":
			unfinished = d.addCode(i+1, line, unfinished)
		case mark != nil:
			open, output = mark[1], strings.TrimSpace(mark[2]) == "text"
		default:
			if h := heading.FindStringSubmatch(line); h != nil {
				d.addHeading(h[1], headings)
			}
			d.addSentence(i+1, line)
		}
	}
	return d
}

// addCode adds a line of a block and tells whether the next one belongs to it.
func (d *Document) addCode(number int, line string, unfinished bool) bool {
	text, more := strings.CutSuffix(line, "\\")
	if unfinished {
		last := &d.Code[len(d.Code)-1]
		last.Value += strings.TrimSpace(text)
	} else {
		d.Code = append(d.Code, Text{number, text})
	}
	return more
}

func (d *Document) addSentence(number int, line string) {
	for _, s := range span.FindAllString(line, -1) {
		d.Spans = append(d.Spans, Text{number, strings.Trim(s, "`")})
	}
	line = span.ReplaceAllString(line, "code")
	for _, found := range append(link.FindAllStringSubmatch(line, -1), attribute.FindAllStringSubmatch(line, -1)...) {
		d.Links = append(d.Links, Text{number, found[1]})
	}
}

// addHeading makes the anchor of a heading: small letters, hyphens for spaces, nothing of punctuation, and a number where there was such a heading before.
func (d *Document) addHeading(text string, before map[string]int) {
	text = linked.ReplaceAllString(text, "$1")
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
	n := before[anchor]
	before[anchor] = n + 1
	if n > 0 {
		anchor = fmt.Sprintf("%s-%d", anchor, n)
	}
	d.Anchors[anchor] = true
}
