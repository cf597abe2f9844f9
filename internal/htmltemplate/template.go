// Package htmltemplate executes a subset of the templates of html/template, in the same syntax. It reads struct fields
// and map entries but calls no methods. html/template looks methods up by name, so the linker cannot remove exported
// methods, and the program is a third larger (ADR 49). Templates call functions instead of methods.
//
// Values are escaped for HTML text and quoted attributes. A value at the beginning of an attribute that holds a URL
// must be relative or http(s). In a style attribute, a value must be a safe part of it, such as a number. Parse rejects
// actions in other places: scripts, comments, tags, attributes without double quotes, and attributes that hold a script
// or a document, such as onclick.
package htmltemplate

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"strings"
	"text/template/parse"
)

// HTML is markup that is safe to be part of a page. It is not escaped.
type HTML string

// CSS is a style sheet that is safe to be part of a page. It is the only value that may be in a style element.
type CSS string

// Funcs are functions by name. Each returns a value, or a value and an error.
type Funcs map[string]any

// Template is a set of named templates. It is safe for concurrent use.
type Template struct {
	trees map[string]*parse.Tree
	funcs map[string]reflect.Value
}

// Parse parses the files that match a pattern. Each is a template with its base name. funcs may be nil.
func Parse(files fs.FS, pattern string, funcs Funcs) (*Template, error) {
	all := maps.Clone(builtins)
	maps.Copy(all, funcs)
	t := &Template{trees: map[string]*parse.Tree{}, funcs: map[string]reflect.Value{}}
	for name, f := range all {
		t.funcs[name] = reflect.ValueOf(f)
	}
	names, err := fs.Glob(files, pattern)
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("htmltemplate: no file matches %s (%w)", pattern, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		trees, err := parse.Parse(path.Base(name), string(text), "", "", all)
		if err != nil {
			return nil, fmt.Errorf("htmltemplate: %w", err)
		}
		maps.Copy(t.trees, trees)
	}
	for name, tree := range t.trees {
		if err := checkContexts(name, tree.Root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Execute returns the output of the template with a name for data.
func (t *Template) Execute(name string, data any) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("htmltemplate: %s: %w", name, failed.error)
		}
	}()
	e := &execution{template: t}
	e.call(name, reflect.ValueOf(data))
	return e.out.Bytes(), nil
}

// failure is the panic of an execution that cannot continue.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// execution is one call of Execute.
type execution struct {
	template  *Template
	out       bytes.Buffer
	variables []variable // innermost last
}

type variable struct {
	name  string
	value reflect.Value
}

// call executes a template with its own variables.
func (e *execution) call(name string, dot reflect.Value) {
	tree := e.template.trees[name]
	if tree == nil {
		fail("there is no template %q", name)
	}
	outer := e.variables
	e.variables = []variable{{"$", dot}}
	e.walk(dot, tree.Root)
	e.variables = outer
}

func (e *execution) walk(dot reflect.Value, node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				e.walk(dot, child)
			}
		}
	case *parse.TextNode:
		e.out.Write(n.Text)
	case *parse.ActionNode:
		if v := e.pipe(dot, n.Pipe); len(n.Pipe.Decl) == 0 {
			e.print(v)
		}
	case *parse.IfNode:
		e.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		e.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		e.loop(dot, &n.BranchNode)
	case *parse.TemplateNode:
		e.call(n.Name, e.pipe(dot, n.Pipe))
	default:
		fail("%s is not supported", node)
	}
}

// branch executes if and with.
func (e *execution) branch(dot reflect.Value, n *parse.BranchNode, with bool) {
	defer e.scope()()
	v := e.pipe(dot, n.Pipe)
	switch {
	case !truth(v):
		e.walk(dot, n.ElseList)
	case with:
		e.walk(v, n.List)
	default:
		e.walk(dot, n.List)
	}
}

// scope returns a function that ends the variables declared since.
func (e *execution) scope() func() {
	n := len(e.variables)
	return func() { e.variables = e.variables[:n] }
}

// loop executes range over a slice.
func (e *execution) loop(dot reflect.Value, n *parse.BranchNode) {
	defer e.scope()()
	list := indirect(e.pipe(dot, &parse.PipeNode{NodeType: parse.NodePipe, Cmds: n.Pipe.Cmds}))
	if !list.IsValid() || list.Kind() == reflect.Slice && list.Len() == 0 {
		e.walk(dot, n.ElseList)
		return
	}
	if list.Kind() != reflect.Slice {
		fail("range over %s: want a slice", list.Type())
	}
	for i := range list.Len() {
		end := e.scope()
		switch names := n.Pipe.Decl; len(names) {
		case 1:
			e.declare(names[0], list.Index(i))
		case 2:
			e.declare(names[0], reflect.ValueOf(i))
			e.declare(names[1], list.Index(i))
		}
		e.walk(list.Index(i), n.List)
		end()
	}
}

func (e *execution) declare(name *parse.VariableNode, v reflect.Value) {
	e.variables = append(e.variables, variable{name.Ident[0], v})
}

// pipe returns the value of the last command of a pipeline; each command gets the value of the one before it as its
// last argument.
func (e *execution) pipe(dot reflect.Value, p *parse.PipeNode) (v reflect.Value) {
	if p == nil {
		return v
	}
	for i, c := range p.Cmds {
		args := c.Args[1:]
		if f, ok := c.Args[0].(*parse.IdentifierNode); ok {
			var values []reflect.Value
			for _, a := range args {
				values = append(values, e.value(dot, a))
			}
			if i > 0 {
				values = append(values, v)
			}
			v = e.apply(f.Ident, values)
			continue
		}
		if len(args) > 0 || i > 0 {
			fail("%s: only functions have arguments", c)
		}
		v = e.value(dot, c.Args[0])
	}
	for _, name := range p.Decl {
		e.declare(name, v)
	}
	return v
}

// value returns the value of an operand.
func (e *execution) value(dot reflect.Value, node parse.Node) reflect.Value {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.PipeNode:
		defer e.scope()()
		return e.pipe(dot, n)
	case *parse.IdentifierNode:
		return e.apply(n.Ident, nil)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	case *parse.BoolNode:
		return reflect.ValueOf(n.True)
	case *parse.VariableNode:
		for i := len(e.variables) - 1; i >= 0; i-- {
			if v := e.variables[i]; v.name == n.Ident[0] {
				return fields(v.value, n.Ident[1:])
			}
		}
	}
	fail("%s is not supported", node)
	return reflect.Value{}
}

// fields follows a chain of fields: of a struct by name, of a map by key.
func fields(v reflect.Value, names []string) reflect.Value {
	for _, name := range names {
		v = indirect(v)
		switch {
		case v.IsValid() && v.Kind() == reflect.Struct:
			found := v.FieldByName(name)
			if !found.IsValid() {
				fail("%s has no field %s", v.Type(), name)
			}
			v = found
		case v.IsValid() && v.Kind() == reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
		default:
			fail("a value without fields has no field %s", name)
		}
	}
	return v
}

// indirect follows pointers and interfaces. It returns the zero Value for nil.
func indirect(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

func truth(v reflect.Value) bool {
	if v = indirect(v); !v.IsValid() {
		return false
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() > 0
	case reflect.Struct:
		return true
	}
	return !v.IsZero()
}

// apply calls a function.
func (e *execution) apply(name string, args []reflect.Value) reflect.Value {
	f := e.template.funcs[name]
	t := f.Type()
	if n := len(args); n < t.NumIn() && !(t.IsVariadic() && n == t.NumIn()-1) || n > t.NumIn() && !t.IsVariadic() {
		fail("%s has %d arguments, want %d", name, n, t.NumIn())
	}
	for i, a := range args {
		var want reflect.Type
		if t.IsVariadic() && i >= t.NumIn()-1 {
			want = t.In(t.NumIn() - 1).Elem()
		} else {
			want = t.In(i)
		}
		switch {
		case !a.IsValid():
			args[i] = reflect.Zero(want)
		case a.Type().AssignableTo(want):
		case indirect(a).IsValid() && indirect(a).Type().AssignableTo(want):
			args[i] = indirect(a)
		default:
			fail("%s: argument %d is a %s, want a %s", name, i+1, a.Type(), want)
		}
	}
	results := f.Call(args)
	if len(results) == 2 {
		if err, _ := reflect.TypeAssert[error](results[1]); err != nil {
			fail("%s: %w", name, err)
		}
	}
	return results[0]
}

// urlAttributes are the texts that precede the URL in attributes with a URL, such as href and formaction.
var urlAttributes = [][]byte{[]byte(`href="`), []byte(`src="`), []byte(`action="`)}

var errUnsafeURL = errors.New("it is neither relative nor http(s)")

// print appends a value, escaped unless it is HTML or CSS.
func (e *execution) print(v reflect.Value) {
	if v = indirect(v); !v.IsValid() {
		return
	}
	switch text := v.Interface().(type) {
	case HTML:
		e.out.WriteString(string(text))
	case CSS:
		e.out.WriteString(string(text))
	default:
		plain := fmt.Sprint(text)
		for _, attribute := range urlAttributes {
			if bytes.HasSuffix(e.out.Bytes(), attribute) && !safeURL(plain) {
				fail("URL %q: %w", plain, errUnsafeURL)
			}
		}
		e.out.WriteString(html.EscapeString(plain))
	}
}

// builtins are the functions of every template.
var builtins = Funcs{
	"eq":     func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) },
	"index":  func(texts map[string]string, key string) string { return texts[key] },
	"not":    func(v any) bool { return !truth(reflect.ValueOf(v)) },
	"print":  fmt.Sprint,
	"printf": fmt.Sprintf,
}

// safeURL reports whether a URL is relative, http or https. Browsers remove tabs and line ends from URLs.
func safeURL(url string) bool {
	if strings.ContainsFunc(url, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	scheme, _, found := strings.Cut(url, ":")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return true
	}
	scheme = strings.ToLower(scheme)
	return scheme == "http" || scheme == "https"
}
