package policy

import (
	"math"
	"reflect"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// gopher-lua converts numbers to strings and back by rules of Go, and computes another remainder than Lua 5.1.
// Therefore hidden functions convert and compute as LuaJIT does.

const (
	textName      = "\x00text"      // of an operand of ..
	numberName    = "\x00number"    // of an operand of an arithmetic operator
	remainderName = "\x00remainder" // of two operands of %
)

// convertOperands rewrites the chunk so that it converts and computes with the functions of convert.
func convertOperands(chunk []ast.Stmt) {
	walk(reflect.ValueOf(chunk), func(node any) {
		switch n := node.(type) {
		case *ast.StringConcatOpExpr:
			n.Lhs, n.Rhs = converted(textName, n.Lhs), converted(textName, n.Rhs)
		case *ast.UnaryMinusOpExpr:
			n.Expr = converted(numberName, n.Expr)
		case *ast.ArithmeticOpExpr:
			n.Lhs, n.Rhs = converted(numberName, n.Lhs), converted(numberName, n.Rhs)
			if n.Operator == "%" {
				n.Lhs = called(remainderName, n.Line(), n.Lhs, n.Rhs)
				n.Operator, n.Rhs = "*", &ast.NumberExpr{Value: "1"}
			}
		}
	})
}

// converted returns a call of a function that converts e. Where e has the right type in any case, it returns e.
func converted(name string, e ast.Expr) ast.Expr {
	switch e.(type) {
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

// convert defines the functions for one run. They return values of other types unchanged: the engine reports them.
func (m *meter) convert() {
	m.hide(textName, 2, func(l *lua.LState) lua.LValue {
		if n, ok := l.Get(1).(lua.LNumber); ok {
			return lua.LString(number(float64(n)))
		}
		return l.Get(1)
	})
	m.hide(numberName, 3, func(l *lua.LState) lua.LValue {
		s, ok := l.Get(1).(lua.LString)
		if ok && !plainNumber.MatchString(strings.TrimPrefix(string(s), "-")) {
			l.RaiseError("%s is not a number that every edge reads: write it as 40 or 1.5", quote(string(s)))
		}
		return l.Get(1)
	})
	m.hide(remainderName, 3, func(l *lua.LState) lua.LValue {
		a, b := float64(l.CheckNumber(1)), float64(l.CheckNumber(2))
		return lua.LNumber(a - math.Floor(a/b)*b)
	})
}
