package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrate applies pending migrations. Several processes may call it at the same time.
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
	_, err = provider.Up(ctx)
	return err
}

// The lock of the migrations: its key, and how often a process that starts tries to get it, once a second.
const (
	migrationLock  = 0x736c75696365
	migrationTries = 60
)

// migratePostgres holds the lock of the migrations in a transaction of its own, because a lock of a session does not
// exist behind a connection pooler. It needs two connections.
func migratePostgres(ctx context.Context, db *sql.DB) error {
	lock, err := lockMigrations(ctx, db)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Rollback() }()
	return migrate(ctx, goose.DialectPostgres, db, "postgres")
}

// lockMigrations tries to get the lock instead of waiting in a statement, whose snapshot would block a migration that
// creates an index concurrently.
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
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
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
