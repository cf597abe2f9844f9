package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// classifyPostgres separates errors caused by the data, which wrap ErrRejected, from all others, by SQLSTATE: class 22
// is a value that does not fit, 23 a violated constraint, and P0001 is raised by a trigger of the deployment. A missing
// table or permission (42) is an error of the deployment and must not turn orders into dead letters, so it wraps
// sale.ErrUnavailable like all others.
func classifyPostgres(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23" || pg.Code == "P0001") {
		return rejected(pg.ConstraintName, pg.Message)
	}
	if ok && needsPoolMode(pg) {
		err = fmt.Errorf("%w: %s", err, addPoolMode)
	}
	return unavailable(err)
}

// classifyConnect is classifyPostgres for the first connection. It returns a *URLError if a repetition with the same
// URL cannot succeed: every host rejects the user, has no such database, or refuses TLS although the URL requires it.
func classifyConnect(err error) error {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	permanent := !slices.ContainsFunc(attempts(err), mayEnd)
	switch {
	case pg != nil && (permanent || pg.Code == "28P01" || pg.Code == "3D000"): // pgx tries no further host after these codes
		return &URLError{pg.Message + ": correct the user, the password or the name of the database, or the pg_hba.conf of " +
			"the server"}
	case permanent:
		return &URLError{"the server refused TLS, which sslmode of the URL requires: turn on ssl in its postgresql.conf, " +
			"or use sslmode=disable on a trusted network"}
	}
	return classifyPostgres(err)
}

// attempts returns the errors of a connection's attempts: one or several for each host of the URL.
func attempts(err error) []error {
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if all, ok := failed.Unwrap().(interface{ Unwrap() []error }); ok {
			return all.Unwrap()
		}
	}
	return []error{err}
}

// mayEnd reports whether the cause of a failed attempt can end without a change of the URL or of the server's
// configuration.
func mayEnd(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !strings.HasPrefix(pg.Code, "28") && pg.Code != "3D000"
	}
	return !strings.Contains(err.Error(), "server refused TLS connection") // pgconn has no type for it
}

const addPoolMode = "a connection pooler in transaction mode requires pool_mode=transaction in the database URL"

// needsPoolMode reports whether an error is caused by a pooler in transaction mode without pool_mode=transaction in the
// URL: the pooler rejects the timeouts as startup parameters, or runs a prepared statement on a connection to the
// server on which it was not prepared.
func needsPoolMode(err *pgconn.PgError) bool {
	return strings.Contains(err.Message, "unsupported startup parameter") || // of PgBouncer
		err.Code == "26000" || err.Code == "42P05" // invalid_sql_statement_name, duplicate_prepared_statement
}

// sqlState returns the code of an error of PostgreSQL; "" for another error.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
