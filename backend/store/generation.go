package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrStale says that orders were taken from a Redis that has been rebuilt since: whether it still knows them is not certain, so they may not become
// rows until it does. Nothing was written.
var ErrStale = errors.New("taken from a Redis that was rebuilt since")

type generationKey struct{}

// AtGeneration makes a Write or a CancelDead with this context fail with ErrStale unless the generation is the present one. 0, and a context without it, is any.
func AtGeneration(ctx context.Context, generation int64) context.Context {
	return context.WithValue(ctx, generationKey{}, generation)
}

func generationOf(ctx context.Context) int64 {
	n, _ := ctx.Value(generationKey{}).(int64)
	return n
}

// present returns ErrStale unless the context's generation is the present one. That stays the present one until the transaction ends.
func (s *Store) present(ctx context.Context, db conn) error {
	wanted := generationOf(ctx)
	if wanted == 0 {
		return nil
	}
	var n int64
	if err := one(ctx, db, []any{&n}, "SELECT n FROM counters WHERE name = 'generation'"+s.engine.dialect().forShare); err != nil {
		return err
	}
	if n != wanted {
		return ErrStale
	}
	return nil
}

// Generation is the number of the rebuild of Redis that has last read the orders; 0 before the first.
func (s *Store) Generation(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var n int64
	if err := one(ctx, s.engine.direct(), []any{&n}, "SELECT n FROM counters WHERE name = 'generation'"); err != nil {
		return 0, fmt.Errorf("order: generation: %w", err)
	}
	return n, nil
}

// NextFence numbers a rebuild of Redis that begins. No number is given twice, and each is higher than above: a database that was restored has
// forgotten numbers that the caller still finds elsewhere.
func (s *Store) NextFence(ctx context.Context, above int64) (int64, error) {
	var n int64
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		if _, err := db.exec(ctx, "UPDATE counters SET n = CASE WHEN n < $1 THEN $1 ELSE n END + 1 WHERE name = 'fence'", above); err != nil {
			return err
		}
		return one(ctx, db, []any{&n}, "SELECT n FROM counters WHERE name = 'fence'")
	})
	if err != nil {
		return 0, fmt.Errorf("order: next fence: %w", err)
	}
	return n, nil
}

// BeginGeneration makes a fence the present generation. When it returns, every Write of an older one has ended or will fail with ErrStale, so what is
// read from then on is all that becomes of the orders of that time. It returns ErrStale when a later rebuild was faster.
func (s *Store) BeginGeneration(ctx context.Context, fence int64) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		changed, err := db.exec(ctx, "UPDATE counters SET n = $1 WHERE name = 'generation' AND n <= $1", fence)
		if err == nil && changed == 0 {
			err = ErrStale
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("order: begin generation %d: %w", fence, err)
	}
	return nil
}

// Journal is what is known of one backend's journal of accepted orders.
type Journal struct {
	ID      string
	Adopted int64         // the generation of Redis that holds its orders
	Silent  time.Duration // since it was last heard of, by the database's clock
}

// BeatJournal tells that a journal's backend is alive, and which generation of Redis holds the journal's orders.
func (s *Store) BeatJournal(ctx context.Context, id string, adopted int64) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		now := s.engine.dialect().now
		_, err := db.exec(ctx, "INSERT INTO journals (id, adopted, seen_at) VALUES ($1, $2, "+now+") ON CONFLICT (id) DO UPDATE SET seen_at = "+now+", adopted = $2", id, adopted)
		return err
	})
	if err != nil {
		return fmt.Errorf("order: beat: %w", err)
	}
	return nil
}

// Journals lists every journal that was ever heard of.
func (s *Store) Journals(ctx context.Context) ([]Journal, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var journals []Journal
	err := s.engine.direct().query(ctx, func(r row) error {
		var j Journal
		var seen, now instant
		err := r.Scan(&j.ID, &j.Adopted, &seen, &now)
		j.Silent = now.Sub(seen.Time)
		journals = append(journals, j)
		return err
	}, "SELECT id, adopted, seen_at, "+s.engine.dialect().now+" FROM journals ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("order: journals: %w", err)
	}
	return journals, nil
}
