package policy

import (
	"cmp"

	"github.com/yuin/gopher-lua/ast"
)

// position is the source position of a part of the returned table. A computed part has no position of its own, and is
// reported at the position of the part that contains it.
type position struct {
	expr   ast.Expr // nil if the part is computed
	line   int
	locals map[string]ast.Expr
}

// returned returns the position of the table that the chunk returns.
func returned(chunk []ast.Stmt) position {
	p := position{locals: map[string]ast.Expr{}}
	for _, stmt := range chunk {
		switch s := stmt.(type) {
		case *ast.LocalAssignStmt:
			for i, name := range s.Names {
				if i < len(s.Exprs) {
					p.locals[name] = s.Exprs[i]
				}
			}
		case *ast.ReturnStmt:
			p.line = s.Line()
			if len(s.Exprs) > 0 {
				return p.at(s.Exprs[0], s.Line())
			}
		}
	}
	return p
}

// at returns the position of expr, which begins on this line.
func (p position) at(expr ast.Expr, line int) position {
	if ident, ok := expr.(*ast.IdentExpr); ok {
		if table, ok := p.locals[ident.Value].(*ast.TableExpr); ok {
			expr = table
		}
	}
	return position{expr: expr, line: line, locals: p.locals}
}

// field returns the position of a field, which begins with its key.
func (p position) field(name string) position {
	if table, ok := p.expr.(*ast.TableExpr); ok {
		for _, f := range table.Fields {
			if key, ok := f.Key.(*ast.StringExpr); ok && key.Value == name {
				return p.at(f.Value, cmp.Or(key.Line(), f.Value.Line(), p.line))
			}
		}
	}
	return position{line: p.line, locals: p.locals}
}

// item returns the position of list element i, from 1.
func (p position) item(i int) position {
	if table, ok := p.expr.(*ast.TableExpr); ok {
		for _, f := range table.Fields {
			if f.Key != nil {
				continue
			}
			if i--; i == 0 {
				return p.at(f.Value, cmp.Or(f.Value.Line(), p.line))
			}
		}
	}
	return position{line: p.line, locals: p.locals}
}
