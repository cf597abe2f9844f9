package store

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"

	"sluice/backend/sale"
)

// ErrStale reports that orders were read from a Redis that has been rebuilt since. They may be missing in Redis, so
// they must be restored there before they become rows. Nothing was written.
var ErrStale = errors.New("read from a Redis that has been rebuilt since")

type generationKey struct{}

// generation is the generation of one shard in which orders were read; the zero value accepts every generation.
type generation struct {
	name   string // of the shard's counter
	number int64
}

// WithGeneration returns a context with which Store.Write, CancelDead and DropDead return ErrStale unless the current
// generation of a shard is the given one. 0, as in a context without a generation, accepts every generation.
func WithGeneration(ctx context.Context, shard int, number int64) context.Context {
	return context.WithValue(ctx, generationKey{}, generation{generationName(shard), number})
}

func generationOf(ctx context.Context) generation {
	g, _ := ctx.Value(generationKey{}).(generation)
	return g
}

// generationName returns the name of the counter of a shard. That of shard 0 exists in every database.
func generationName(shard int) string {
	if shard == 0 {
		return "generation"
	}
	return "generation." + strconv.Itoa(shard)
}

// selectGeneration returns no row before the first rebuild of the shard.
const selectGeneration = "SELECT n FROM counters WHERE name = $1"

// checkGeneration returns ErrStale unless the context's generation is current, and keeps it current until the
// transaction ends.
func checkGeneration(ctx context.Context, c Conn) error {
	wanted := generationOf(ctx)
	if wanted.number == 0 {
		return nil
	}
	var current int64
	err := Get(ctx, c, []any{&current}, selectGeneration+c.Dialect().ForShare, wanted.name)
	if err != nil && !errors.Is(err, sale.ErrNotFound) {
		return err
	}
	if current != wanted.number {
		return ErrStale
	}
	return nil
}

// Generation returns the id of the deployment, 0 before ClaimDeployment, and the current generation of a shard, 0
// before its first rebuild: the fence of the last rebuild that has read its orders.
func (s *Store) Generation(ctx context.Context, shard int) (deployment, generation int64, err error) {
	err = s.View(ctx, "store: generation", func(ctx context.Context, c Conn) error {
		return Get(ctx, c, []any{&deployment, &generation},
			"SELECT coalesce((SELECT n FROM counters WHERE name = 'deployment'), 0), coalesce(("+selectGeneration+"), 0)",
			generationName(shard))
	})
	return deployment, generation, err
}

// NextFence returns the fence of a rebuild that begins. Every fence is higher than all earlier ones, and than above. As
// above, the caller passes the highest fence that it found outside SQL, because a database restored from a backup has
// lost the latest ones.
func (s *Store) NextFence(ctx context.Context, above int64) (int64, error) {
	return Value(ctx, s.Update, "store: next fence", func(ctx context.Context, c Conn) (int64, error) {
		return GetRow(ctx, c, Column[int64],
			"UPDATE counters SET n = CASE WHEN n < $1 THEN $1 ELSE n END + 1 WHERE name = 'fence' RETURNING n", above)
	})
}

// BeginGeneration makes a fence the current generation of a shard. When it returns, every Write of an older generation
// of the shard has committed or will return ErrStale, so the orders read afterwards are complete. It returns ErrStale
// if a later rebuild of the shard has begun its generation.
func (s *Store) BeginGeneration(ctx context.Context, shard int, fence int64) error {
	return s.Update(ctx, "store: begin generation", func(ctx context.Context, c Conn) error {
		n, err := c.Exec(ctx, `INSERT INTO counters (name, n) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET n = $2 WHERE counters.n <= $2`, generationName(shard), fence)
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
}

// ClaimDeployment returns the id of the deployment of the database, which is not 0, and the number of shards. The first
// call sets a random id, and want as the number of shards. In a database that was in use before the number was
// recorded, it is 1.
func (s *Store) ClaimDeployment(ctx context.Context, want int) (deployment int64, have int, err error) {
	err = s.Update(ctx, "store: claim", func(ctx context.Context, c Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO counters (name, n)
			SELECT 'shards', CASE WHEN n > 0 THEN 1 ELSE $1 END FROM counters WHERE name = 'fence'
			UNION ALL SELECT 'deployment', CAST($2 AS bigint)
			ON CONFLICT (name) DO NOTHING`, int64(want), 1+rand.Int64N(math.MaxInt64))
		if err != nil {
			return err
		}
		err = Get(ctx, c, []any{&have, &deployment},
			"SELECT n, (SELECT n FROM counters WHERE name = 'deployment') FROM counters WHERE name = 'shards'")
		if err == nil && have < 1 {
			err = errors.New("the recorded number of shards is below 1")
		}
		return err
	})
	return deployment, have, err
}
