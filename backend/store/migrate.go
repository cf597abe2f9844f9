package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sluice/internal/loop"
)

//go:embed migrations
var migrations embed.FS

// migrate applies pending migrations, and returns a *URLError if the tables are newer than the program. Several
// processes may call it at the same time.
func migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB, dir string) error {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if _, err = provider.Up(ctx); err != nil {
		return err
	}
	tables, known, err := provider.GetVersions(ctx)
	if err == nil && tables > known {
		const detail = "its tables are of version %d, and this program knows versions up to %d: " +
			"use the program that migrated them, or restore the backup"
		err = &URLError{fmt.Sprintf(detail, tables, known)}
	}
	return err
}

// migrationError returns an error of migrate: a *URLError as it is, a missing permission in PostgreSQL as a *URLError
// with the remedy, and any other wrapped in sale.ErrUnavailable.
func migrationError(err error) error {
	if bad, ok := errors.AsType[*URLError](err); ok {
		return bad
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" { // insufficient_privilege
		return &URLError{pg.Message + ": the tables cannot be migrated: make the user the owner of the database and of " +
			"its tables, or start this version once with a URL of the owner"}
	}
	return fmt.Errorf("migrate: %w", unavailable(err))
}

// checkTables checks that a database is that of a running deployment, and changes nothing. It returns a *URLError if
// the database does not exist, has no tables of this package, or if no process has recorded the number of shards in it.
// It returns another error if the tables are of another version than the program.
func checkTables(ctx context.Context, db *sql.DB, dir string, classify func(error) error) error {
	files, err := fs.Glob(migrations, "migrations/"+dir+"/*.sql")
	if err != nil {
		return err
	}
	want, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return err
	}
	var version, shards sql.NullInt64
	err = db.QueryRowContext(ctx, `SELECT (SELECT max(version_id) FROM goose_db_version),
		(SELECT n FROM counters WHERE name = 'shards')`).Scan(&version, &shards)
	switch {
	case sqlState(err) == "3D000": // invalid_catalog_name
		return notDeployed("it does not exist")
	case foreignTables(err), err == nil && !shards.Valid:
		return notDeployed("it has no tables of a running deployment")
	case err != nil:
		return classify(err)
	case version.Int64 != want:
		return fmt.Errorf("the tables are of version %d, and this program needs %d: use the program version of the backends",
			version.Int64, want)
	}
	return nil
}

// foreignTables reports whether a query failed because a table or column of this package is missing or of another type,
// or because a file is not a database.
func foreignTables(err error) bool {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() == sqlite3.SQLITE_ERROR || lite.Code() == sqlite3.SQLITE_NOTADB
	}
	switch sqlState(err) {
	case "42P01", "42703", "22P02": // undefined_table, undefined_column, invalid_text_representation
		return true
	}
	return false
}

// notDeployed is the error of a database that is not that of a running deployment.
func notDeployed(why string) error {
	return &URLError{why + ": name the database of the backends"}
}

// The lock of the migrations: its key, and how often a process that starts tries to get it, once a second.
const (
	migrationLock  = 0x736c75696365
	migrationTries = 60
)

// migratePostgres holds the lock of the migrations in a transaction of its own, because a connection pooler supports no
// locks of a session. It needs two connections.
func migratePostgres(ctx context.Context, db *sql.DB) error {
	lock, err := lockMigrations(ctx, db)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Rollback() }()
	return migrate(ctx, goose.DialectPostgres, db, "postgres")
}

// lockMigrations tries once a second to get the lock. A statement that waits for the lock would hold a snapshot, and a
// migration of another process that creates an index concurrently would wait for the end of that snapshot.
func lockMigrations(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	for try := 0; ; try++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		locked := false
		if _, err = tx.ExecContext(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err == nil {
			const lock = "SELECT pg_try_advisory_xact_lock($1)"
			err = tx.QueryRowContext(ctx, lock, int64(migrationLock)).Scan(&locked)
		}
		if locked {
			return tx, nil
		}
		_ = tx.Rollback()
		if err != nil {
			return nil, err
		}
		if try == migrationTries {
			return nil, errors.New("another process has been migrating the tables for a minute")
		}
		loop.Sleep(ctx, time.Second)
	}
}

// migrateSQLite retries when a migration fails. SQLite has no lock that outlives a transaction, so of two processes
// that start together, one may find tables that the other has created meanwhile. Each migration is one transaction, so
// a failed one has changed nothing.
func migrateSQLite(ctx context.Context, db *sql.DB) error {
	var err error
	for range 3 {
		if err = migrate(ctx, goose.DialectSQLite3, db, "sqlite"); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}
