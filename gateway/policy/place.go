package policy

import "github.com/yuin/gopher-lua/ast"

// place is where a part of the returned table is written. A policy may compute its table, and then a part has no place of its own: it is
// said to be where the nearest part around it is.
type place struct {
	expr   ast.Expr // nil when the part is not written out
	line   int
	locals map[string]ast.Expr
}

// returned is the place of the table that the chunk returns.
func returned(chunk []ast.Stmt) place {
	p := place{locals: map[string]ast.Expr{}}
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

// at is the place of expr, which is on the given line unless it knows better.
func (p place) at(expr ast.Expr, line int) place {
	if expr.Line() > 0 {
		line = expr.Line()
	}
	if ident, ok := expr.(*ast.IdentExpr); ok {
		if written := p.locals[ident.Value]; written != nil {
			if _, table := written.(*ast.TableExpr); table {
				return place{expr: written, line: line, locals: p.locals}
			}
		}
	}
	return place{expr: expr, line: line, locals: p.locals}
}

// field is the place of the field called name.
func (p place) field(name string) place {
	if table, ok := p.expr.(*ast.TableExpr); ok {
		for _, f := range table.Fields {
			if key, ok := f.Key.(*ast.StringExpr); ok && key.Value == name {
				line := key.Line()
				if line == 0 {
					line = p.line
				}
				return p.at(f.Value, line)
			}
		}
	}
	return place{line: p.line, locals: p.locals}
}

// item is the place of the i-th unnamed part, from 1.
func (p place) item(i int) place {
	if table, ok := p.expr.(*ast.TableExpr); ok {
		for _, f := range table.Fields {
			if f.Key != nil {
				continue
			}
			if i--; i == 0 {
				return p.at(f.Value, p.line)
			}
		}
	}
	return place{line: p.line, locals: p.locals}
}
