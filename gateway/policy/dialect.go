package policy

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// The two edges run two Luas: gopher-lua knows 5.1, LuaJIT a little more, and what one takes as something else or not at all would make one
// file two policies. foreign finds what they read differently. lua/edge/sluice/policy/dialect.lua is the same in Lua.

var (
	plainNumber = regexp.MustCompile(`^(0[xX][0-9a-fA-F]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)$`)
	numberToken = regexp.MustCompile(`^\.?[0-9](?:[eE][+-][0-9]|[0-9A-Za-z_.])*`)
	wordToken   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	operator    = regexp.MustCompile(`^[=~<>]=`)
	longOpen    = regexp.MustCompile(`^\[(=*)\[`)
)

// afterThese an empty statement would begin, which Lua 5.1 has not.
var opensBlock = map[string]bool{"": true, ";": true, "do": true, "then": true, "else": true, "repeat": true}

// plainText takes off what LuaJIT passes over at the beginning of a file: the mark that some editors write, and a line for the shell.
func plainText(source []byte) []byte {
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(source, []byte("#")) {
		end := bytes.IndexByte(source, '\n')
		if end < 0 {
			end = len(source)
		}
		return source[end:] // with its line break, so that lines keep their numbers
	}
	return source
}

// foreign returns the line of the first thing that is not Lua 5.1 as both edges read it, and what it is; or 0. What is unfinished is the
// parser's to complain about.
func foreign(source []byte) (line int, what string) {
	var keys fieldNames
	for at := 0; at < len(source); {
		rest := source[at:]
		length, keep := 1, true
		switch c := rest[0]; {
		case c <= ' ':
			keep = false
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
				return lineOf(source, at), fmt.Sprintf("%s is not a number that every edge reads: write it as 40 or 1.5", quote(string(text)))
			}
		case wordToken.Match(rest):
			length = len(wordToken.Find(rest))
			if string(rest[:length]) == "goto" {
				return lineOf(source, at), "goto is not read by every edge in the same way: use if, for or while"
			}
		case c >= 0x80:
			return lineOf(source, at), "a letter that is not ASCII: it may be in strings and comments only"
		case c == ';' && opensBlock[keys.before[0]]:
			return lineOf(source, at), `";" with no statement before it: take it out`
		case operator.Match(rest):
			length = 2
		}
		if keep {
			if twice := keys.next(string(rest[:length])); twice != "" {
				return lineOf(source, at), twice + " is there twice in one table: take one out"
			}
		}
		at += length
	}
	return 0, ""
}

// fieldNames watches the tokens of a source for a table that names a field twice: which of the two counts differs from engine to engine.
type fieldNames struct {
	before [4]string         // the tokens before, the last one first
	open   []map[string]bool // of each bracket and block that is open: the fields so far where it is a table, else nil
}

func (f *fieldNames) next(token string) (twice string) {
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
		if n := len(f.open); n > 0 && f.open[n-1] != nil && (mark == "{" || mark == "," || mark == ";") {
			if f.open[n-1][name] {
				return quote(name)
			}
			f.open[n-1][name] = true
		}
	}
	copy(f.before[1:], f.before[:])
	f.before[0] = token
	return ""
}

func lineOf(source []byte, at int) int { return bytes.Count(source[:at], []byte("\n")) + 1 }

// comment is the length of the comment that rest begins with.
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

// shortString is the length of the string in quotes that rest begins with, and what is wrong with an escape in it.
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
				return i, quote(`\`+string(rest[i:i+max(digits, 1)])) + " in a string is not read by every edge: write the character itself"
			}
			i += max(digits-1, 0)
		}
	}
	return len(rest), ""
}
