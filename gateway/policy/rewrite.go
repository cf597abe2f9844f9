package policy

import (
	"math"
	"reflect"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// gopher-lua converts numbers to strings and back by rules of Go, and computes another remainder than Lua 5.1. In
// a, b = b, a it assigns a before it reads it, and in a = f() and b it assigns nothing if f() is false. Therefore
// hidden functions convert, compute and keep values, as LuaJIT does.

const (
	textName    = "\x00text"    // of an operand of ..
	numberName  = "\x00number"  // of an operand of an arithmetic operator; checks the other one, too
	divisorName = "\x00divisor" // of the right operand of %
	valuesName  = "\x00values"  // of the right side of an assignment
)

// useHidden rewrites the chunk so that it uses the functions of defineHidden.
func useHidden(chunk []ast.Stmt) {
	walk(reflect.ValueOf(chunk), func(node any) {
		switch n := node.(type) {
		case *ast.AssignStmt:
			checkIndices(n)
			if _, logical := n.Rhs[0].(*ast.LogicalOpExpr); logical || len(n.Lhs) > 1 {
				keepValues(n)
			}
		case *ast.StringConcatOpExpr:
			n.Lhs, n.Rhs = converted(textName, n.Lhs), converted(textName, n.Rhs)
		case *ast.UnaryMinusOpExpr:
			n.Expr = converted(numberName, n.Expr)
		case *ast.ArithmeticOpExpr:
			calculate(n)
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

// keepValues makes an assignment evaluate its values before it assigns the first one, and the tables that it replaces.
// A call among the values may replace another table: then Lua writes to the new one.
func keepValues(n *ast.AssignStmt) {
	n.Rhs = []ast.Expr{called(valuesName, n.Line(), n.Rhs...)}
	for _, left := range n.Lhs {
		written, ok := left.(*ast.AttrGetExpr)
		if ok && slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool { return isSame(e, written.Object) }) {
			written.Object = called(valuesName, n.Line(), written.Object)
		}
	}
}

// isSame reports whether two expressions are the same variable.
func isSame(a, b ast.Expr) bool {
	x, ok := a.(*ast.IdentExpr)
	y, both := b.(*ast.IdentExpr)
	return ok && both && x.Value == y.Value
}

// calculate makes an operation convert its operands. Lua reads a local variable on the left after a call on the right,
// which may change it. So the variable stays in its place, and the function on the right checks it as well, or returns
// a divisor, which computes the remainder.
func calculate(n *ast.ArithmeticOpExpr) {
	_, variable := n.Lhs.(*ast.IdentExpr)
	switch {
	case n.Operator == "%":
		n.Rhs = converted(divisorName, n.Rhs)
	case variable && !isSimple(n.Rhs):
		n.Rhs = called(numberName, n.Line(), n.Rhs, n.Lhs)
	default:
		n.Lhs, n.Rhs = converted(numberName, n.Lhs), converted(numberName, n.Rhs)
	}
}

// isSimple reports whether an expression is a variable or a constant, so that it calls no function.
func isSimple(e ast.Expr) bool {
	switch e.(type) {
	case *ast.IdentExpr, *ast.NumberExpr, *ast.StringExpr:
		return true
	}
	return false
}

// converted returns a call of a function that converts e. Where e has the right type in any case, it returns e.
func converted(name string, e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true // one value
	case *ast.Comma3Expr:
		e.AdjustRet = true
	case *ast.StringExpr, *ast.StringConcatOpExpr:
		if name == textName {
			return e
		}
	case *ast.NumberExpr, *ast.ArithmeticOpExpr, *ast.UnaryMinusOpExpr:
		if name == numberName {
			return e
		}
	}
	return called(name, e.Line(), e)
}

// defineHidden defines the functions for one run. They return values of other types unchanged: the engine reports them.
func (m *meter) defineHidden() {
	m.countIndices()
	m.hide(valuesName, 2, func(l *lua.LState) int { return l.GetTop() })
	m.hideOne(textName, 2, func(l *lua.LState) lua.LValue {
		if n, ok := l.Get(1).(lua.LNumber); ok {
			return lua.LString(number(float64(n)))
		}
		return l.Get(1)
	})
	m.hideOne(numberName, 2, func(l *lua.LState) lua.LValue {
		m.left += l.GetTop()
		for i := 1; i <= l.GetTop(); i++ {
			checkText(l, l.Get(i))
		}
		return l.Get(1)
	})
	division := m.state.NewTable() // the metatable of divisors
	division.RawSetString("__mod", m.state.NewFunction(func(l *lua.LState) int {
		a, b := operand(l, l.Get(1)), l.CheckUserData(2).Value.(lua.LNumber)
		l.Push(a - lua.LNumber(math.Floor(float64(a/b)))*b)
		return 1
	}))
	m.hideOne(divisorName, 3, func(l *lua.LState) lua.LValue {
		return &lua.LUserData{Value: operand(l, l.Get(1)), Metatable: division}
	})
}

// checkText reports text that is not a number for every edge as an error.
func checkText(l *lua.LState, v lua.LValue) {
	s, ok := v.(lua.LString)
	if ok && !plainNumber.MatchString(strings.TrimPrefix(string(s), "-")) {
		l.RaiseError("%s is not a number that every edge reads: write it as 40 or 1.5", quote(string(s)))
	}
}

// operand returns an operand of % as a number.
func operand(l *lua.LState, v lua.LValue) lua.LNumber {
	if checkText(l, v); !lua.LVCanConvToString(v) {
		l.RaiseError("attempt to perform arithmetic on a %s value", v.Type())
	}
	return lua.LVAsNumber(v)
}
