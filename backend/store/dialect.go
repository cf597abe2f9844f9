package store

import (
	"fmt"
	"strings"
)

// Dialect generates the fragments of SQL in which PostgreSQL and SQLite differ.
type Dialect struct {
	Now        string // the database's clock, in the form in which the tables hold times
	ForUpdate  string // locks the rows of a SELECT
	ForShare   string // prevents changes of the rows of a SELECT
	SkipLocked string // like ForUpdate, and omits rows that another transaction has locked
	LockText   string // statement that locks the text $1 until the end of the transaction

	postgres bool
}

var postgresDialect = Dialect{
	Now: "now()", ForUpdate: " FOR UPDATE", ForShare: " FOR SHARE", SkipLocked: " FOR UPDATE SKIP LOCKED",
	LockText: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", postgres: true,
}

// pick returns the text of the engine.
func (d Dialect) pick(postgres, sqlite string) string {
	if d.postgres {
		return postgres
	}
	return sqlite
}

// Ago returns the instant that lies a number of milliseconds before Now; a negative number is an instant after it.
func (d Dialect) Ago(milliseconds string) string {
	return d.pick("now() - "+milliseconds+" * interval '1 millisecond'", d.Now+" - "+milliseconds)
}

// Millis returns the instant that is a number of milliseconds after the beginning of 1970.
func (d Dialect) Millis(milliseconds string) string {
	return d.pick("timestamptz 'epoch' + "+milliseconds+" * interval '1 millisecond'", milliseconds)
}

// In returns the comparison of a column with a list, whose argument is a []int64 or a []string.
func (d Dialect) In(placeholder string) string {
	return d.pick("= ANY("+placeholder+")", "IN (SELECT value FROM json_each("+placeholder+"))")
}

// Contains returns the condition that a column contains a text, compared byte by byte, unlike with LIKE.
func (d Dialect) Contains(column, placeholder string) string {
	return d.pick("strpos", "instr") + "(" + column + ", " + placeholder + ") > 0"
}

// Records returns a subquery that reads a JSON array of objects (see JSON) as rows. columns lists the keys of the
// objects with their PostgreSQL types, such as "id bigint, name text".
func (d Dialect) Records(placeholder, columns string) string {
	if d.postgres {
		return "SELECT * FROM jsonb_to_recordset(" + placeholder + "::jsonb) AS record (" + columns + ")"
	}
	var list []string
	for column := range strings.SplitSeq(columns, ", ") {
		name, _, _ := strings.Cut(column, " ")
		list = append(list, fmt.Sprintf("value->>'%s' AS %s", name, name))
	}
	return "SELECT " + strings.Join(list, ", ") + " FROM json_each(" + placeholder + ")"
}

// Length returns the number of elements of a column that holds a list of integers.
func (d Dialect) Length(column string) string {
	return d.pick("cardinality", "json_array_length") + "(" + column + ")"
}

// Elements returns a table of the elements of a column that holds a list of integers: value, and its index key, from 0.
func (d Dialect) Elements(column, alias string) string {
	return d.pick("LATERAL (SELECT value, key - 1 AS key FROM unnest("+column+
		") WITH ORDINALITY AS element (value, key))", "json_each("+column+")") + " AS " + alias
}

// Lookup returns a join with the row of a table that has a value in a unique column, or with NULLs if no row has it.
// The join makes PostgreSQL use the index of the column. With statistics from a time when the table was small,
// PostgreSQL may read the whole table for a plain join.
func (d Dialect) Lookup(table, column, value string) string {
	matches := table + "." + column + " = " + value
	return d.pick("LEFT JOIN LATERAL (SELECT * FROM "+table+" WHERE "+matches+" LIMIT 1) AS "+table+" ON true",
		"LEFT JOIN "+table+" ON "+matches)
}
