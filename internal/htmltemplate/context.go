package htmltemplate

import (
	"fmt"
	"regexp"
	"strings"
	"text/template/parse"
)

// context is a syntactic position in HTML.
type context int

const (
	inText  context = iota
	inTag           // between < and >, outside attribute values
	inValue         // in a double-quoted attribute value
	inCode          // in a double-quoted value of an attribute that holds a script or a document
	inStyle         // the content of a style element
	inRaw           // the content of a script element, or a comment
)

// checkContexts verifies that a template begins and ends in text, and that values are in text, in quoted attributes,
// or in a style element, where they must be CSS.
func checkContexts(name string, root *parse.ListNode) error {
	c := &checker{}
	if end := c.list(inText, root); c.err == nil && end != inText {
		c.err = fmt.Errorf("it ends inside a tag, a script or a style")
	}
	if c.err != nil {
		return fmt.Errorf("htmltemplate: %s: %w", name, c.err)
	}
	return nil
}

type checker struct{ err error }

// list returns the context after the nodes of a list that begins in a context.
func (c *checker) list(at context, list *parse.ListNode) context {
	if list == nil {
		return at
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TextNode:
			at = after(at, string(n.Text))
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 && (at == inTag || at == inCode || at == inRaw) {
				c.err = fmt.Errorf("%s is neither in text nor in a quoted attribute of text", n)
			}
			// The only value that pages have in a style is .Style, whose type is CSS.
			if at == inStyle && n.String() != "{{.Style}}" {
				c.err = fmt.Errorf("%s in a style: want {{.Style}} of type CSS", n)
			}
		case *parse.IfNode:
			at = c.branch(at, &n.BranchNode)
		case *parse.WithNode:
			at = c.branch(at, &n.BranchNode)
		case *parse.RangeNode:
			at = c.branch(at, &n.BranchNode)
		case *parse.TemplateNode:
			if at != inText {
				c.err = fmt.Errorf("%s is not in text", n)
			}
		}
	}
	return at
}

// branch returns the context after a branch. Both alternatives must end in it.
func (c *checker) branch(at context, n *parse.BranchNode) context {
	first, second := c.list(at, n.List), c.list(at, n.ElseList)
	if first != second && c.err == nil {
		c.err = fmt.Errorf("the alternatives of {{if %s}} end in different places", n.Pipe)
	}
	return first
}

// codeAttribute matches the part of a tag before the value of an attribute that holds code. Escaping for HTML does not
// make a value a safe part of code.
var codeAttribute = regexp.MustCompile(`(?i)(^|[\s/])(on[a-z]+|srcdoc)\s*=\s*$`)

// after returns the context after a text that begins in a context.
func after(at context, text string) context {
	for text != "" {
		var found bool
		switch at {
		case inText:
			_, text, found = strings.Cut(text, "<")
			tag := strings.ToLower(text)
			switch {
			case !found:
			case strings.HasPrefix(tag, "style>"):
				at, text = inStyle, text[len("style>"):]
			case strings.HasPrefix(tag, "!--"), strings.HasPrefix(tag, "style"),
				strings.HasPrefix(tag, "script") && !strings.HasPrefix(tag, "script src="):
				at = inRaw
			default:
				at = inTag
			}
		case inTag:
			i := strings.IndexAny(text, `">`)
			if i < 0 {
				return at
			}
			switch {
			case text[i] == '>':
				at = inText
			case codeAttribute.MatchString(text[:i]):
				at = inCode
			default:
				at = inValue
			}
			text = text[i+1:]
		case inValue, inCode:
			if _, text, found = strings.Cut(text, `"`); found {
				at = inTag
			}
		case inStyle:
			if _, text, found = strings.Cut(text, "</style>"); found {
				at = inText
			}
		case inRaw:
			return at
		}
	}
	return at
}
