package policy

import (
	"reflect"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// gopher-lua allocates a list up to the highest index that is written: t[60000000] = 1 is one instruction and
// allocates a gigabyte. Therefore every index that a policy writes is checked by a function first.

const (
	indexName = "\x00index" // a global that no source text can name
	freeIndex = 256         // indices up to here are not counted
	maxIndex  = 1 << 20     // sum of the larger indices: 16 MB
)

// checkIndices rewrites the chunk so that every computed index that it assigns passes through indexName. A table
// constructor has none: nonPortable rejects them.
func checkIndices(chunk []ast.Stmt) {
	walk(reflect.ValueOf(chunk), func(node any) {
		assign, ok := node.(*ast.AssignStmt)
		if !ok {
			return
		}
		for _, left := range assign.Lhs {
			if written, ok := left.(*ast.AttrGetExpr); ok {
				written.Key = checked(written.Key)
			}
		}
	})
}

// walk calls visit for every node of a syntax tree, before the nodes below it.
func walk(v reflect.Value, visit func(node any)) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), visit)
		}
	case reflect.Interface:
		walk(v.Elem(), visit)
	case reflect.Pointer:
		if !v.IsNil() {
			visit(v.Interface())
			walk(v.Elem(), visit)
		}
	}
}

// checked returns a call of indexName with key. Constant names need no check.
func checked(key ast.Expr) ast.Expr {
	if _, ok := key.(*ast.StringExpr); ok {
		return key
	}
	return called(indexName, key.Line(), key)
}

// called returns a call of a hidden function, on this line.
func called(name string, line int, args ...ast.Expr) ast.Expr {
	function := &ast.IdentExpr{Value: name}
	call := &ast.FuncCallExpr{Func: function, Args: args}
	for _, e := range []ast.Expr{function, call} {
		e.SetLine(line)
		e.SetLastLine(line)
	}
	return call
}

// hide defines a function that no source text can name. A call takes the given number of instructions more than the
// nginx edge needs for the expression; they are not counted.
func (m *meter) hide(name string, more int, function lua.LGFunction) {
	m.state.SetGlobal(name, m.state.NewFunction(func(l *lua.LState) int {
		m.left += more
		return function(l)
	}))
}

// hideOne is hide for a function with one result.
func (m *meter) hideOne(name string, more int, function func(l *lua.LState) lua.LValue) {
	m.hide(name, more, func(l *lua.LState) int {
		l.Push(function(l))
		return 1
	})
}

// countIndices defines the function indexName for one run.
func (m *meter) countIndices() {
	total := 0.0
	m.hideOne(indexName, 3, func(l *lua.LState) lua.LValue {
		key := l.Get(1)
		if i, ok := key.(lua.LNumber); ok && i > freeIndex {
			if total += float64(i); total > maxIndex {
				l.RaiseError("the index %s makes a list longer than any policy needs", number(float64(i)))
			}
		}
		return key
	})
}
