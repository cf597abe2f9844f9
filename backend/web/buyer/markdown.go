package buyer

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"sluice/internal/htmltemplate"
)

// markdown renders CommonMark. The renderer of goldmark omits raw HTML. Links are replaced by their text unless they
// lead to a page, a mail address or a telephone number, because a browser executes some schemes and starts other
// programs for others. Images are replaced by their text, because the page's policy allows one picture only. The
// highest heading is h2.
var markdown = goldmark.New(
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(restrict{}, 100))),
	goldmark.WithRendererOptions(html.WithXHTML()),
)

type restrict struct{}

// Transform implements parser.ASTTransformer.
func (restrict) Transform(doc *ast.Document, source text.Reader, _ parser.Context) {
	var unwrapped []ast.Node
	var bare []*ast.AutoLink
	var headings []*ast.Heading
	highest := 6
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering {
				headings, highest = append(headings, n), min(highest, n.Level)
			}
		case *ast.AutoLink:
			if entering && !isSafe(n.URL(source.Source())) {
				bare = append(bare, n)
			}
		case *ast.Link:
			if !entering && !isSafe(n.Destination) { // innermost first
				unwrapped = append(unwrapped, n)
			}
		case *ast.Image:
			if !entering {
				unwrapped = append(unwrapped, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, h := range headings {
		h.Level = min(h.Level-highest+2, 6)
	}
	for _, link := range bare {
		label := ast.NewString(link.Label(source.Source()))
		label.SetRaw(true) // the text is not parsed as Markdown
		link.Parent().ReplaceChild(link.Parent(), link, label)
	}
	for _, n := range unwrapped {
		parent := n.Parent()
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			parent.InsertBefore(parent, n, child)
		}
		parent.RemoveChild(parent, n)
	}
}

// schemes lists the schemes of links.
var schemes = []string{"http", "https", "mailto", "tel"}

// isSafe reports whether the destination of a link, as the renderer decodes it, has one of the schemes, or none.
func isSafe(destination []byte) bool {
	scheme, _, found := strings.Cut(string(util.URLEscape(destination, true)), ":")
	return !found || strings.ContainsAny(scheme, "/?#") || slices.Contains(schemes, strings.ToLower(scheme))
}

// renderMarkdown returns the HTML of a description, which is safe to be part of a page, and its summary.
func renderMarkdown(source string) (htmltemplate.HTML, string, error) {
	var b bytes.Buffer
	root := markdown.Parser().Parse(text.NewReader([]byte(source)))
	if err := markdown.Renderer().Render(&b, []byte(source), root); err != nil {
		return "", "", err
	}
	rendered := strings.Map(func(r rune) rune { // references such as &#1; are decoded
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, b.String())
	return htmltemplate.HTML(rendered), summary(root, []byte(source)), nil // goldmark escapes text
}

// maxSummary bounds a summary, in characters. Search engines show about as much.
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
