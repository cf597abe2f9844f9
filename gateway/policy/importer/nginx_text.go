package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// parseNginx parses the file at path and the files that it includes. Lua blocks are empty in the result. missing is
// called for an included file that does not exist.
func parseNginx(path string, missing func(path string)) (parsed *crossplane.Payload, err error) {
	defer func() { // the parser panics at "if ()"
		if recover() != nil {
			err = errors.New("a directive has no arguments, such as if ()")
		}
	}()
	return crossplane.Parse(path, &crossplane.ParseOptions{
		StopParsingOnError: true, CombineConfigs: true, SkipDirectiveContextCheck: true, SkipDirectiveArgsCheck: true,
		Open: func(included string) (io.ReadCloser, error) {
			file, err := openNginx(included)
			if included != path && errors.Is(err, fs.ErrNotExist) {
				missing(included)
				return io.NopCloser(bytes.NewReader(nil)), nil
			}
			return file, err
		},
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
	if text, err = withoutLua(path, text); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(text)), nil
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

// withoutLua empties the Lua blocks of a file, and keeps the line breaks in them. The parser would read their comments
// and long strings as code, so that an apostrophe could hide the directives after a block. It returns an error for a
// word that is longer than maxWord, and for blocks deeper than maxDepth, which the parser reads slowly.
func withoutLua(file string, text []byte) (kept []byte, err error) {
	line, depth, first, lua := 1, 0, true, false // first: at the first word of a directive
	for len(text) > 0 {
		token := nginxToken.Find(text)
		kept, text = append(kept, token...), text[len(token):]
		switch {
		case len(bytes.TrimSpace(token)) == 0:
		case len(token) > maxWord:
			return nil, fmt.Errorf("%s:%d: a word of more than %d bytes, which nginx does not accept: is a quote not closed?",
				file, line, maxWord)
		case token[0] == '#':
		case token[0] == '{':
			if depth++; depth > maxDepth {
				return nil, fmt.Errorf("%s:%d: more than %d nested blocks", file, line, maxDepth)
			}
			if lua {
				code := luaCode(text)
				breaks := bytes.Count(code, []byte("\n"))
				kept, text = append(kept, bytes.Repeat([]byte("\n"), breaks)...), text[len(code):]
				line += breaks
			}
			first, lua = true, false
		case token[0] == '}':
			depth--
			first = true
		case token[0] == ';':
			first, lua = true, false
		case first:
			first, lua = false, bytes.HasSuffix(token, []byte("_by_lua_block"))
		}
		line += bytes.Count(token, []byte("\n"))
	}
	return kept, nil
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
