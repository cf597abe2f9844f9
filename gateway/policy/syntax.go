package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A policy is written in a subset of Lua without computation: local names of values, and a returned table. Its grammar:
//
//	policy = { "local" name "=" value [ ";" ] } "return" value [ ";" ]
//	value  = string | number | "true" | "false" | table | name
//	table  = "{" [ field { ( "," | ";" ) field } [ "," | ";" ] ] "}"
//	field  = [ name "=" ] value
//
// lua/edge/sluice/policy/syntax.lua reads the same grammar with the same messages.

// value is a value of a policy, and the line of the source on which it begins.
type value struct {
	line int
	data any // a string, a float64, a bool or a *table; nil if there is none
}

// table is a table constructor. A name that occurs twice is an error, so that its order has no meaning.
type table struct {
	list   []value
	fields map[string]value // the line of a field is that of its name
}

// field returns the value of a field of a table. The line of a missing one is that of the table.
func (v value) field(name string) value {
	if t, ok := v.data.(*table); ok && t.fields[name].data != nil {
		return t.fields[name]
	}
	return value{line: v.line}
}

// token is a part of the source: a name, a number, a string in quotes, or one other character. It is "" at the end of
// the file and after an error.
type token struct {
	text string
	line int
}

// LuaJIT compiles at most maxLocals locals. With that many, it compiles tables that are nested at most maxDepth deep.
const (
	maxLocals = 200
	maxDepth  = 40 // tables within tables
)

var (
	tokenForm  = regexp.MustCompile(`^(?:-?\.?[0-9][0-9A-Za-z_.]*|[A-Za-z_][A-Za-z0-9_]*|[!-~])`)
	nameForm   = regexp.MustCompile(`^[A-Za-z_]`) // also of reserved words
	numberForm = regexp.MustCompile(`^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,9})?$`)
	valueForm  = regexp.MustCompile(`^(?:["{]|-?\.?[0-9]|true$|false$)`) // of a token that begins a value, except names
	longOpen   = regexp.MustCompile(`^--\[(=*)\[`)
	loneReturn = regexp.MustCompile(`\r([^\n]|$)`)
)

// reserved lists the words of Lua that are not names.
var reserved = []string{
	"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil", "not",
	"or", "repeat", "return", "then", "true", "until", "while",
}

func (t token) isName() bool {
	return nameForm.MatchString(t.text) && !slices.Contains(reserved, t.text)
}

// parser converts the source of a policy to values. After the first error it reads no more tokens.
type parser struct {
	rest   string // of the source
	line   int    // at the beginning of rest
	token  token  // the current one
	depth  int    // of open tables
	locals map[string]any
	err    *Finding
}

// parse returns the value that the policy returns.
func parse(name, source string) (value, *Finding) {
	p := &parser{rest: strings.TrimPrefix(source, "\xef\xbb\xbf"), line: 1, locals: map[string]any{}}
	if len(source) > MaxSize {
		p.fail(0, "larger than %d bytes: a policy is a few rules", MaxSize)
	} else if at := loneReturn.FindStringIndex(source); at != nil {
		p.fail(1+strings.Count(source[:at[0]], "\n"),
			"a carriage return without a line feed: end lines as on Unix or Windows")
	}
	p.next()
	v := p.policy()
	if p.err != nil {
		p.err.File = name
	}
	return v, p.err
}

func (p *parser) fail(line int, format string, args ...any) {
	if p.err == nil {
		p.err = &Finding{Line: line, Message: fmt.Sprintf(format, args...)}
		p.rest, p.token = "", token{line: line}
	}
}

// unexpected reports a token that the grammar does not have here.
func (p *parser) unexpected(t token, hint string) {
	if t.text == "" {
		p.fail(t.line, "unexpected end of the file: is a bracket not closed?")
		return
	}
	text := t.text
	if text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	p.fail(t.line, "unexpected %s: %s", quote(text), hint)
}

func (p *parser) policy() value {
	for n := 1; p.token.text == "local"; n++ {
		if n > maxLocals {
			p.fail(p.token.line, "more than %d locals: write values where they are used", maxLocals)
		}
		p.next()
		name := p.take()
		if !name.isName() || p.token.text != "=" {
			p.unexpected(name, `a local is written as local burst = 40`)
		}
		p.next()
		p.locals[name.text] = p.value(p.take()).data
		p.skip(";")
	}
	begin := p.take()
	switch begin.text {
	case "return":
	case "":
		return value{line: begin.line}
	case "{":
		p.fail(begin.line, "a policy begins with return: return { rules = { {...} } }")
	default:
		p.unexpected(begin, "a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }")
	}
	v := p.value(p.take())
	p.skip(";")
	if p.token.text != "" {
		p.unexpected(p.token, "a policy ends with the value that it returns")
	}
	v.line = begin.line
	return v
}

// value returns the value that begins with token t, which has been taken.
func (p *parser) value(t token) value {
	v := value{line: t.line}
	switch {
	case t.text == "{":
		v.data = p.table(t)
	case t.text == "true" || t.text == "false":
		v.data = t.text == "true"
	case strings.HasPrefix(t.text, `"`):
		v.data = t.text[1 : len(t.text)-1]
	case numberForm.MatchString(t.text):
		v.data, _ = strconv.ParseFloat(t.text, 64)
	case valueForm.MatchString(t.text):
		p.fail(t.line, "%s is not a number of a policy: write it as 40 or 1.5", quote(t.text))
	case t.isName():
		if v.data = p.locals[t.text]; v.data == nil {
			p.fail(t.line, "%s is not defined: write a string in quotes, and a local before its use", quote(t.text))
		}
	case t.text == "[":
		p.unexpected(t, "write the name of a field without brackets, and a string in quotes")
	default:
		p.unexpected(t, "a value is a string, a number, true, false, a table or the name of a local")
	}
	return v
}

// table returns the table that begins with the token open, which has been taken.
func (p *parser) table(open token) *table {
	t := &table{fields: map[string]value{}}
	if p.depth++; p.depth > maxDepth {
		p.fail(open.line, "more than %d brackets within brackets: is one not closed?", maxDepth)
	}
	for p.token.text != "}" && p.err == nil {
		first := p.take()
		if p.token.text == "=" && first.isName() {
			p.next()
			if _, twice := t.fields[first.text]; twice {
				p.fail(first.line, "%s appears twice in one table: remove one", quote(first.text))
			}
			t.fields[first.text] = value{line: first.line, data: p.value(p.take()).data}
		} else {
			t.list = append(t.list, p.value(first))
		}
		if !p.skip(",") && !p.skip(";") && p.token.text != "}" {
			hint := "a policy computes nothing, write the value itself"
			if p.token.isName() || valueForm.MatchString(p.token.text) {
				hint = "is a comma or a bracket missing before it?"
			}
			p.unexpected(p.token, hint)
		}
	}
	p.depth--
	p.next()
	return t
}

// skip moves to the next token if the current one has the given text, and reports whether it did.
func (p *parser) skip(text string) bool {
	if p.token.text != text {
		return false
	}
	p.next()
	return true
}

// take returns the current token and moves to the next one.
func (p *parser) take() token {
	t := p.token
	p.next()
	return t
}

// next moves to the next token.
func (p *parser) next() {
	for p.err == nil && (p.space() || p.comment()) {
	}
	p.token = token{line: p.line}
	if p.err != nil || p.rest == "" {
		return
	}
	switch c := p.rest[0]; {
	case c == '"' || c == '\'':
		p.quoted(c)
	case c < ' ' || c == 0x7f:
		p.fail(p.line, "a control character: it may be in comments only")
	case c >= 0x80:
		p.fail(p.line, "a letter that is not ASCII: it may be in strings and comments only")
	default:
		p.token.text = tokenForm.FindString(p.rest)
		p.rest = p.rest[len(p.token.text):]
	}
}

// space removes white space from the beginning of rest, and reports whether there was any.
func (p *parser) space() bool {
	n := len(p.rest) - len(strings.TrimLeft(p.rest, " \t\r\n"))
	p.drop(n)
	return n > 0
}

// comment removes a comment from the beginning of rest, and reports whether there was one.
func (p *parser) comment() bool {
	if !strings.HasPrefix(p.rest, "--") {
		return false
	}
	end := strings.IndexByte(p.rest, '\n')
	if long := longOpen.FindStringSubmatch(p.rest); long != nil {
		mark := "]" + long[1] + "]"
		if end = strings.Index(p.rest, mark); end < 0 {
			p.fail(p.line, "a comment in long brackets that does not end")
			return false
		}
		end += len(mark)
	} else if end < 0 {
		end = len(p.rest)
	}
	p.drop(end)
	return true
}

func (p *parser) drop(n int) {
	p.line += strings.Count(p.rest[:n], "\n")
	p.rest = p.rest[n:]
}

// quoted makes the string at the beginning of rest the current token. Its quotes become double ones.
func (p *parser) quoted(mark byte) {
	length := 1 + strings.IndexFunc(p.rest[1:], func(r rune) bool {
		return r == rune(mark) || r == '\\' || r < ' ' || r == 0x7f
	})
	switch {
	case length == 0 || p.rest[length] == '\n' || p.rest[length] == '\r':
		p.fail(p.line, "a string that does not end on its line: is a quote missing?")
	case p.rest[length] == '\\':
		p.fail(p.line, "a backslash in a string: write the character itself")
	case p.rest[length] != mark:
		p.fail(p.line, "a control character: it may be in comments only")
	default:
		p.token.text = `"` + p.rest[1:length] + `"`
		p.rest = p.rest[length+1:]
	}
}
