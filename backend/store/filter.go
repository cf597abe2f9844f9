package store

import (
	"math"
	"strconv"
	"strings"
)

// PageSize returns how many rows a page has for a requested limit: 1 to 1000, and 100 for 0 or less.
func PageSize(limit int) int {
	if limit <= 0 {
		return 100
	}
	return min(limit, 1000)
}

// Filter collects the conditions of a query with their arguments. Conditions are constants of the program. The zero
// value has no condition.
type Filter struct {
	conditions []string
	Args       []any
}

// Add adds a condition. The first "?" in it stands for arg.
func (f *Filter) Add(condition string, arg any) {
	f.AddConstant(strings.Replace(condition, "?", f.Arg(arg), 1))
}

// Equal adds the condition that a column equals arg. The empty string and int64(0) match every row.
func (f *Filter) Equal(column string, arg any) {
	if arg != "" && arg != int64(0) {
		f.Add(column+" = ?", arg)
	}
}

// ofSale adds the condition that a row belongs to a sale and is behind the row with an id, 0 for all rows, in the order
// of ids or, with newest, in descending order. It returns the columns to order by. The condition is a range of
// (sale_id, id): in a table of few and large sales, PostgreSQL would otherwise read the primary key and skip the rows
// of all other sales.
func (f *Filter) ofSale(saleID string, after int64, newest bool) (orderBy string) {
	id := f.Arg(saleID)
	if newest {
		if after <= 0 {
			after = math.MaxInt64
		}
		f.AddConstant("sale_id >= " + id + " AND (sale_id, id) < (" + id + ", " + f.Arg(after) + ")")
		return "sale_id DESC, id DESC"
	}
	f.AddConstant("sale_id <= " + id + " AND (sale_id, id) > (" + id + ", " + f.Arg(after) + ")")
	return "sale_id, id"
}

// AddConstant adds a condition without an argument.
func (f *Filter) AddConstant(condition string) { f.conditions = append(f.conditions, condition) }

// Arg adds an argument and returns its placeholder.
func (f *Filter) Arg(arg any) string {
	f.Args = append(f.Args, arg)
	return "$" + strconv.Itoa(len(f.Args))
}

// Page returns the end of a query: WHERE with the conditions, ORDER BY, and LIMIT for the PageSize of limit.
func (f *Filter) Page(orderBy string, limit int) string { return f.first(orderBy, PageSize(limit)) }

// first is Page for the first n rows.
func (f *Filter) first(orderBy string, n int) string {
	where := ""
	if len(f.conditions) > 0 {
		where = " WHERE " + strings.Join(f.conditions, " AND ")
	}
	return where + " ORDER BY " + orderBy + " LIMIT " + f.Arg(n)
}
