package store

import (
	"context"
	"fmt"
)

// Probe returns nil if the database at databaseURL runs a statement and accepts writes; for SQLite, if its file can be
// written. It changes nothing and leaves no connection open, so a health check can run it in a process of its own.
// Errors are those of Open and Ping.
func Probe(ctx context.Context, databaseURL string) error {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	postgres, err := isPostgres(databaseURL)
	switch {
	case postgres:
		err = probePostgres(ctx, databaseURL)
	case err == nil:
		var path string
		if path, err = sqlitePath(databaseURL); err == nil {
			err = checkFile(path)
		}
	}
	if err != nil {
		return fmt.Errorf("store: probe: %w", err)
	}
	return nil
}

func probePostgres(ctx context.Context, databaseURL string) error {
	e, _, err := connectPostgres(ctx, databaseURL, defaultTimeout, nil)
	if err != nil {
		return err
	}
	defer func() { _ = e.close() }()
	return e.ping(ctx, e.conn())
}
