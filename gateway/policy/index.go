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

// checkIndices makes every computed index that n assigns pass through indexName. A table constructor has none:
// nonPortable rejects them.
func checkIndices(n *ast.AssignStmt) {
	for _, left := range n.Lhs {
		if written, ok := left.(*ast.AttrGetExpr); ok {
			written.Key = checked(written.Key)
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
