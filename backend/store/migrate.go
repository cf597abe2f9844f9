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

// migrate brings the tables up to date. Several processes may do so at once.
func migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB, folder string, options ...goose.ProviderOption) error {
	files, err := fs.Sub(migrations, "migrations/"+folder)
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
	// The second of two that start at once asks every second, for a minute, whether the first is done.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(0x736c75696365), lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	return migrate(ctx, goose.DialectPostgres, db, "postgres", goose.WithSessionLocker(locker))
}

// migrateSQLite tries again when it fails: SQLite has no lock that outlives a transaction, so of two processes that start at once one may find
// the other's tables half way through. Each migration is one transaction, so the loser has changed nothing.
func migrateSQLite(ctx context.Context, db *sql.DB) error {
	var err error
	for range 3 {
		if err = migrate(ctx, goose.DialectSQLite3, db, "sqlite"); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}
