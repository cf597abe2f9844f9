package buyer

import (
	"bytes"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown renders CommonMark. The renderer of goldmark omits raw HTML and URLs that a browser would execute. Images are
// replaced by their text, because the page's policy allows one picture only. The highest heading is below the page's
// title.
var markdown = goldmark.New(
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(restrict{}, 100))),
	goldmark.WithRendererOptions(html.WithXHTML()),
)

type restrict struct{}

// Transform implements parser.ASTTransformer.
func (restrict) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	var images []ast.Node
	var headings []*ast.Heading
	highest := 6
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering {
				headings, highest = append(headings, n), min(highest, n.Level)
			}
		case *ast.Image:
			if !entering { // the innermost first
				images = append(images, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, h := range headings {
		h.Level = min(h.Level-highest+2, 6)
	}
	for _, image := range images {
		parent := image.Parent()
		for child := image.FirstChild(); child != nil; child = image.FirstChild() {
			parent.InsertBefore(parent, image, child)
		}
		parent.RemoveChild(parent, image)
	}
}

// renderMarkdown returns the HTML of a description, which is safe to be part of a page, and its first words as text.
func renderMarkdown(source string) (template.HTML, string, error) {
	var b bytes.Buffer
	root := markdown.Parser().Parse(text.NewReader([]byte(source)))
	if err := markdown.Renderer().Render(&b, []byte(source), root); err != nil {
		return "", "", err
	}
	return template.HTML(b.String()), summary(root, []byte(source)), nil //nolint:gosec // goldmark escapes text
}

// maxSummary is how much of a description is a summary, in characters: what search engines show.
const maxSummary = 155

// summary returns the first words of a document.
func summary(root ast.Node, source []byte) string {
	var words []string
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			words = append(words, strings.Fields(string(t.Segment.Value(source)))...)
		}
		return ast.WalkContinue, nil
	})
	runes := []rune(withoutBidi(strings.Join(words, " ")))
	if len(runes) > maxSummary {
		return string(runes[:maxSummary-1]) + "…"
	}
	return string(runes)
}
