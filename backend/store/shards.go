package store

import (
	"context"
	"errors"
	"fmt"
)

// ClaimShards says in how many shards the caller wants to keep orders, and returns how many they are kept in: the first one to ask decides for all. A database that a
// process without a say has used before has one shard.
func (s *Store) ClaimShards(ctx context.Context, want int) (have int, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		_, err := db.exec(ctx, `INSERT INTO counters (name, n)
			SELECT 'shards', CASE WHEN n > 0 THEN 1 ELSE $1 END FROM counters WHERE name = 'fence' ON CONFLICT (name) DO NOTHING`, int64(want))
		if err != nil {
			return err
		}
		return one(ctx, db, []any{&have}, "SELECT n FROM counters WHERE name = 'shards'")
	})
	if err == nil && have < 1 {
		err = errors.New("the database says there are none")
	}
	if err != nil {
		return 0, fmt.Errorf("order: shards: %w", err)
	}
	return have, nil
}
