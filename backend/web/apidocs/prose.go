package apidocs

import (
	"fmt"
	"html"
	"regexp"
	"strings"

	"sluice/internal/htmltemplate"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	boldSpan = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// prose renders a description as HTML: paragraphs, lists with "- ", `code` and **bold**. Everything else is text, also
// HTML, which a library for Markdown would omit or pass on.
func prose(text fmt.Stringer) htmltemplate.HTML {
	var b strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n\n") {
		block = strings.TrimSpace(block)
		switch {
		case block == "":
		case strings.HasPrefix(block, "- "):
			b.WriteString("<ul>")
			for item := range strings.SplitSeq(block[2:], "\n- ") {
				b.WriteString("<li>" + inline(item) + "</li>")
			}
			b.WriteString("</ul>")
		default:
			b.WriteString("<p>" + inline(block) + "</p>")
		}
	}
	return htmltemplate.HTML(b.String()) // escaped by inline
}

func inline(text string) string {
	escaped := html.EscapeString(strings.Join(strings.Fields(text), " "))
	return boldSpan.ReplaceAllString(codeSpan.ReplaceAllString(escaped, "<code>$1</code>"), "<strong>$1</strong>")
}
