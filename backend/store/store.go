// Package order keeps sales and orders in SQL: PostgreSQL, or SQLite for one machine. What is written here is the truth; Redis is made from it.
// The package knows nothing of Redis, and it never decides who may buy: it refuses what would oversell a sale or sell twice to one buyer.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
)

// ErrRejected says that the data itself is at fault: it would oversell, give one place of a buyer to two orders, names an unknown sale, or
// does not fit the tables. Trying again cannot help. Everything that can wraps sale.ErrUnavailable.
var ErrRejected = errors.New("rejected by the order store")

// URLError says what is wrong with a database URL, in one line and without the URL, which may hold a password.
type URLError struct{ Detail string }

func (e *URLError) Error() string { return "database URL: " + e.Detail }

// DefaultTimeout bounds each call of a Store; see WithTimeout.
const DefaultTimeout = 5 * time.Second

// Store is the order store. It is safe for concurrent use. Every method except Open and Close ends within the store's timeout, or earlier when its
// context does, and then leaves all of its effect or nothing. Errors wrap ErrRejected, one of sale's errors, or sale.ErrUnavailable when the
// database is away, locked, full, read-only or too slow.
type Store struct {
	engine  engine
	timeout time.Duration
	changed func() // see OnChange; may be nil
}

// Option changes how Open opens a store.
type Option func(*Store)

// WithTimeout sets how long one call may take; 0 or less means DefaultTimeout. For PostgreSQL the server gives up a statement after the same time, so that
// one whose client is gone does not linger.
func WithTimeout(d time.Duration) Option {
	return func(s *Store) {
		if d > 0 {
			s.timeout = d
		}
	}
}

// Open opens the database that the URL names and brings its tables up to date:
//
//	postgres://user:password@host:5432/name   (also postgresql://)
//	sqlite:///var/lib/sluice/orders.db        (an absolute path)
//	sqlite:orders.db                          (a path below the working folder)
//
// The error is one line without the password: a *URLError, or one that wraps sale.ErrUnavailable when the database does not answer.
func Open(ctx context.Context, databaseURL string, options ...Option) (*Store, error) {
	s := &Store{timeout: DefaultTimeout}
	for _, option := range options {
		option(s)
	}
	var err error
	scheme, _, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "postgres", "postgresql":
		s.engine, err = openPostgres(ctx, databaseURL, s.timeout)
	case "sqlite":
		s.engine, err = openSQLite(ctx, databaseURL, s.timeout)
	default:
		err = &URLError{"must begin with postgres:// or sqlite:"}
	}
	if err != nil {
		return nil, fmt.Errorf("order: open: %w", err)
	}
	return s, nil
}

// Ping tells whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := s.engine.direct().exec(ctx, "SELECT 1"); err != nil {
		return fmt.Errorf("order: ping: %w", err)
	}
	return nil
}

// Close gives back the connections. It waits no longer than the store's timeout for calls that are under way.
func (s *Store) Close() error {
	done := make(chan error, 1)
	go func() { done <- s.engine.close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(s.timeout):
		return fmt.Errorf("order: close: %w: connections are still in use", sale.ErrUnavailable)
	}
}
