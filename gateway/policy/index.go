package policy

import (
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

// checkIndices rewrites the chunk so that every computed index that it writes passes through indexName.
func checkIndices(chunk []ast.Stmt) {
	for _, s := range chunk {
		switch s := s.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if written, ok := left.(*ast.AttrGetExpr); ok {
					written.Key = checked(written.Key)
				}
			}
			inExprs(s.Lhs...)
			inExprs(s.Rhs...)
		case *ast.LocalAssignStmt:
			inExprs(s.Exprs...)
		case *ast.FuncCallStmt:
			inExprs(s.Expr)
		case *ast.DoBlockStmt:
			checkIndices(s.Stmts)
		case *ast.WhileStmt:
			inExprs(s.Condition)
			checkIndices(s.Stmts)
		case *ast.RepeatStmt:
			checkIndices(s.Stmts)
			inExprs(s.Condition)
		case *ast.IfStmt:
			inExprs(s.Condition)
			checkIndices(s.Then)
			checkIndices(s.Else)
		case *ast.NumberForStmt:
			inExprs(s.Init, s.Limit, s.Step)
			checkIndices(s.Stmts)
		case *ast.GenericForStmt:
			inExprs(s.Exprs...)
			checkIndices(s.Stmts)
		case *ast.FuncDefStmt:
			inExprs(s.Func)
		case *ast.ReturnStmt:
			inExprs(s.Exprs...)
		}
	}
}

func inExprs(exprs ...ast.Expr) {
	for _, e := range exprs {
		switch e := e.(type) {
		case *ast.AttrGetExpr:
			inExprs(e.Object, e.Key)
		case *ast.TableExpr:
			for _, f := range e.Fields {
				if f.Key != nil {
					f.Key = checked(f.Key)
				}
				inExprs(f.Key, f.Value)
			}
		case *ast.FuncCallExpr:
			inExprs(e.Func, e.Receiver)
			inExprs(e.Args...)
		case *ast.LogicalOpExpr:
			inExprs(e.Lhs, e.Rhs)
		case *ast.RelationalOpExpr:
			inExprs(e.Lhs, e.Rhs)
		case *ast.StringConcatOpExpr:
			inExprs(e.Lhs, e.Rhs)
		case *ast.ArithmeticOpExpr:
			inExprs(e.Lhs, e.Rhs)
		case *ast.UnaryMinusOpExpr:
			inExprs(e.Expr)
		case *ast.UnaryNotOpExpr:
			inExprs(e.Expr)
		case *ast.UnaryLenOpExpr:
			inExprs(e.Expr)
		case *ast.FunctionExpr:
			checkIndices(e.Stmts)
		}
	}
}

// checked returns a call of indexName with key. Constant names need no check.
func checked(key ast.Expr) ast.Expr {
	if _, ok := key.(*ast.StringExpr); ok {
		return key
	}
	name := &ast.IdentExpr{Value: indexName}
	call := &ast.FuncCallExpr{Func: name, Args: []ast.Expr{key}}
	for _, e := range []ast.Expr{name, call} {
		e.SetLine(key.Line())
		e.SetLastLine(key.Line())
	}
	return call
}

// countIndices defines the function indexName for one run.
func countIndices(state *lua.LState) {
	total := 0.0
	state.SetGlobal(indexName, state.NewFunction(func(l *lua.LState) int {
		key := l.Get(1)
		if i, ok := key.(lua.LNumber); ok && i > freeIndex {
			if total += float64(i); total > maxIndex {
				l.RaiseError("the index %s makes a list longer than any policy needs", number(float64(i)))
			}
		}
		l.Push(key)
		return 1
	}))
}
