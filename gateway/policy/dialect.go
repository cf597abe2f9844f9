package policy

import (
	"bytes"
	"regexp"
	"strings"
)

// The Go edge runs gopher-lua (Lua 5.1), and the nginx edge LuaJIT, which accepts more. nonPortable finds source text
// that they interpret differently. lua/edge/sluice/policy/dialect.lua does the same.

var (
	// plainNumber matches no number with leading zeros, which gopher-lua reads as octal, and none beyond its range,
	// which it reads as NaN.
	plainNumber = regexp.MustCompile(
		`^(0[xX][0-9a-fA-F]{1,15}|((0|[1-9][0-9]{0,99})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?)$`)
	numberToken = regexp.MustCompile(`^\.?[0-9](?:[eE][+-][0-9]|[0-9A-Za-z_.])*`)
	wordToken   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	operator    = regexp.MustCompile(`^[=~<>]=`)
	longOpen    = regexp.MustCompile(`^\[(=*)\[`)
	halfOpen    = regexp.MustCompile(`^--\[=+([^=\[]|$)`)
	loneReturn  = regexp.MustCompile(`\r([^\n]|$)`)
)

// opensBlock lists the tokens after which a semicolon would be an empty statement, which Lua 5.1 does not have.
var opensBlock = map[string]bool{"": true, ";": true, "do": true, "then": true, "else": true, "repeat": true}

// stripPreamble removes what LuaJIT ignores at the beginning of a file: a byte order mark and a shebang line.
func stripPreamble(source []byte) []byte {
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(source, []byte("#")) {
		end := bytes.IndexAny(source, "\r\n")
		if end < 0 {
			end = len(source)
		}
		return source[end:] // with the line break, so that line numbers are correct
	}
	return source
}

// nonPortable returns the line and a description of the first construct that the edges interpret differently, or 0. It
// ignores incomplete constructs, which the parser reports.
func nonPortable(source []byte) (line int, what string) {
	if at := loneReturn.FindIndex(source); at != nil {
		return lineOf(source, at[0]), "a carriage return without a line feed: end lines as on Unix or Windows"
	}
	var keys fieldNames
	for at := 0; at < len(source); {
		rest := source[at:]
		length, keep := 1, true
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			keep = false
		case c < ' ':
			return lineOf(source, at), "a control character: it may be in strings and comments only"
		case halfOpen.Match(rest):
			return lineOf(source, at), "a comment that begins like a long one: put a space behind --"
		case bytes.HasPrefix(rest, []byte("--")):
			length, keep = comment(rest), false
		case c == '"' || c == '\'':
			var wrong string
			if length, wrong = shortString(rest); wrong != "" {
				return lineOf(source, at), wrong
			}
		case longOpen.Match(rest):
			length = longString(rest)
		case numberToken.Match(rest):
			text := numberToken.Find(rest)
			if length = len(text); !plainNumber.Match(text) {
				return lineOf(source, at), quote(string(text)) + " is not a number that every edge reads: write it as 40 or 1.5"
			}
		case wordToken.Match(rest):
			length = len(wordToken.Find(rest))
			if string(rest[:length]) == "goto" {
				return lineOf(source, at), "goto is not read by every edge in the same way: use if, for or while"
			}
		case c >= 0x80:
			return lineOf(source, at), "a letter that is not ASCII: it may be in strings and comments only"
		case c == ';' && (opensBlock[keys.before[0]] || keys.inBody):
			return lineOf(source, at), `";" with no statement before it: remove it`
		case operator.Match(rest):
			length = 2
		}
		if keep {
			if wrong := keys.next(string(rest[:length])); wrong != "" {
				return lineOf(source, at), wrong
			}
		}
		at += length
	}
	return 0, ""
}

// fieldNames finds tables that contain a field twice, or a key that could be one of their fields or list entries: the
// engines differ in which value they use.
type fieldNames struct {
	before   [4]string         // the previous tokens, the last one first
	open     []map[string]bool // for each open bracket or block: the fields so far if it is a table, otherwise nil
	inHeader bool              // the previous token is in the header of a function
	inBody   bool              // the previous token ends that header: a block begins
}

// isSeparator lists the tokens before a field of a table.
var isSeparator = map[string]bool{"{": true, ",": true, ";": true}

// plainKey is the token of a key that can be compared with the names of fields.
var plainKey = regexp.MustCompile(`^("[^"\\]*"|'[^'\\]*')$`)

// next processes a token. It returns a description of an error, or "".
func (f *fieldNames) next(token string) (wrong string) {
	// No expression begins with "[", so behind these marks it is a key.
	if f.before[0] == "[" && isSeparator[f.before[1]] && !plainKey.MatchString(token) ||
		f.before[1] == "[" && isSeparator[f.before[2]] && token != "]" {
		return "a key in brackets that is not a quoted name: write the values of a list in their order"
	}
	if (token == "," || token == ";") && isSeparator[f.before[0]] {
		return quote(token) + " with no value before it: remove it"
	}
	switch token {
	case "{":
		f.open = append(f.open, map[string]bool{})
	case "(", "[", "function", "if", "do", "repeat":
		f.open = append(f.open, nil)
	case "}", ")", "]", "end", "until":
		f.open = f.open[:max(len(f.open)-1, 0)]
	case "=":
		name, mark := f.before[0], f.before[1]
		if name == "]" {
			name, mark = strings.Trim(f.before[1], `"'`), f.before[3]
		}
		if n := len(f.open); n > 0 && f.open[n-1] != nil && isSeparator[mark] {
			if f.open[n-1][name] {
				return quote(name) + " appears twice in one table: remove one"
			}
			f.open[n-1][name] = true
		}
	}
	f.inHeader = f.inHeader || token == "function"
	f.inBody = f.inHeader && token == ")"
	f.inHeader = f.inHeader && !f.inBody
	copy(f.before[1:], f.before[:])
	f.before[0] = token
	return ""
}

func lineOf(source []byte, at int) int { return bytes.Count(source[:at], []byte("\n")) + 1 }

// comment returns the length of the comment at the beginning of rest.
func comment(rest []byte) int {
	if longOpen.Match(rest[2:]) {
		return 2 + longString(rest[2:])
	}
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		return end
	}
	return len(rest)
}

func longString(rest []byte) int {
	equals := longOpen.FindSubmatch(rest)[1]
	if end := bytes.Index(rest, []byte("]"+string(equals)+"]")); end >= 0 {
		return end + len(equals) + 2
	}
	return len(rest)
}

// shortString returns the length of the quoted string at the beginning of rest, and a description of an invalid escape.
func shortString(rest []byte) (length int, wrong string) {
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; c {
		case rest[0]:
			return i + 1, ""
		case '\n':
			return i, ""
		case '\\':
			if i++; i == len(rest) {
				break
			}
			digits := 0
			value := 0
			for ; digits < 3 && i+digits < len(rest) && rest[i+digits] >= '0' && rest[i+digits] <= '9'; digits++ {
				value = value*10 + int(rest[i+digits]-'0')
			}
			if value > 255 || digits == 0 && strings.IndexByte("abfnrtv\\\"'\n\r", rest[i]) < 0 {
				return i, quote(`\`+string(rest[i:i+max(digits, 1)])) + " in a string is not read by every edge: write the " +
					"character itself"
			}
			i += max(digits-1, 0)
		}
	}
	return len(rest), ""
}
