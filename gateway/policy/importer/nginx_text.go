package importer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// parseNginx parses the file at path and the files that it includes. Lua blocks are empty in the result.
func parseNginx(path string) (*crossplane.Payload, error) {
	return crossplane.Parse(path, &crossplane.ParseOptions{
		StopParsingOnError: true, CombineConfigs: true, SkipDirectiveContextCheck: true, SkipDirectiveArgsCheck: true,
		Open: openNginx,
	})
}

func openNginx(path string) (io.ReadCloser, error) {
	if err := checkFile(path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text, line := withoutLua(text)
	switch {
	case line > 0:
		return nil, fmt.Errorf("%s:%d: a word of more than %d bytes, which nginx does not accept: is a quote not closed?",
			path, line, maxWord)
	case deepest(text) > maxDepth: // a block takes time in proportion to its depth
		return nil, fmt.Errorf("%s: more than %d nested blocks", path, maxDepth)
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// deepest returns the maximum depth of the blocks of a file.
func deepest(text []byte) (deepest int) {
	depth := 0
	for token := range crossplane.Lex(bytes.NewReader(text)) {
		switch {
		case token.IsQuoted:
		case token.Value == "{":
			depth++
			deepest = max(deepest, depth)
		case token.Value == "}":
			depth--
		}
	}
	return deepest
}

// maxWord bounds the bytes of a word, a text in quotes or a comment. nginx has the same bound.
const maxWord = 4096

var (
	// nginxToken matches white space, a comment, a text in quotes, a mark, or a word at the beginning of a text.
	nginxToken = regexp.MustCompile(
		`(?s)^(?:\s+|#[^\n]*|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[;{}]|(?:[^\s;{}\\$]|\\.|\$\{?)+|\\)`)
	// luaToken matches the beginning of a long string or comment, a comment, a string, other text, or a mark.
	luaToken = regexp.MustCompile(
		`(?s)^(?:(?:--)?\[(=*)\[|--[^\n]*|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|[^-\["'{}]+|.)`)
)

// withoutLua empties the Lua blocks of a configuration, and keeps the line breaks in them. The parser would read their
// comments and long strings as code, so that an apostrophe could hide the directives after a block. It returns the line
// of a word that is longer than maxWord, or 0.
func withoutLua(text []byte) (kept []byte, longWord int) {
	line, first, lua := 1, true, false // first: at the first word of a directive
	for len(text) > 0 {
		token := nginxToken.Find(text)
		space := len(bytes.TrimSpace(token)) == 0
		if len(token) > maxWord && !space {
			return nil, line
		}
		kept, text = append(kept, token...), text[len(token):]
		line += bytes.Count(token, []byte("\n"))
		switch {
		case space || token[0] == '#':
		case lua && token[0] == '{':
			code := luaCode(text)
			breaks := bytes.Count(code, []byte("\n"))
			kept, text = append(kept, bytes.Repeat([]byte("\n"), breaks)...), text[len(code):]
			line += breaks
			first, lua = true, false
		case bytes.IndexByte([]byte(";{}"), token[0]) >= 0:
			first, lua = true, false
		case first:
			first, lua = false, bytes.HasSuffix(token, []byte("_by_lua_block"))
		}
	}
	return kept, 0
}

// luaCode returns the beginning of text, up to the "}" that closes the block around it.
func luaCode(text []byte) []byte {
	depth := 1
	for at := 0; at < len(text); {
		m := luaToken.FindSubmatchIndex(text[at:])
		length := m[1]
		switch {
		case m[2] >= 0:
			closing := "]" + string(text[at+m[2]:at+m[3]]) + "]"
			end := bytes.Index(text[at+length:], []byte(closing))
			if end < 0 {
				return text
			}
			length += end + len(closing)
		case text[at] == '{':
			depth++
		case text[at] == '}':
			if depth--; depth == 0 {
				return text[:at]
			}
		}
		at += length
	}
	return text
}
