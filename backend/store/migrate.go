package store

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// migrate applies pending migrations. Several processes may call it at the same time.
func migrate(
	ctx context.Context, dialect goose.Dialect, db *sql.DB, dir string, options ...goose.ProviderOption,
) error {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return err
	}
	options = append(options, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	provider, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func migratePostgres(ctx context.Context, db *sql.DB) error {
	// Of two processes that start together, the second retries the lock every second for a minute.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(0x736c75696365), lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	return migrate(ctx, goose.DialectPostgres, db, "postgres", goose.WithSessionLocker(locker))
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
