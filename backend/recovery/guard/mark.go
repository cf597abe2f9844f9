package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Mark is what a shard of Redis says about itself. The zero value is an empty Redis.
type record struct {
	RunID      string // of the server whose data was verified; empty: none
	Generation int64  // what it was verified as
	Fence      int64  // of the last rebuild that has begun
	Rebuilding bool   // one is under way, or was given up
	Swapped    int64  // fence of the last rebuild that has put the sales and the queue in place
	Shards     int64  // how many shards there are; 0: nobody has said so
}

func parseRecord(fields map[string]string) record {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(fields[name], 10, 64) // a number that is not there, or none, is 0: not verified
		return n
	}
	return record{RunID: fields["run_id"], Generation: number("generation"), Fence: number("fence"), Rebuilding: fields["rebuilding"] != "", Swapped: number("swapped"), Shards: number("shards")}
}

// Identify names the process that answers. Two that hold different data never have one name.
type Identify func(ctx context.Context, c redis.Cmdable) (string, error)

// RunID is the name that a Redis server gives itself when it starts.
func RunID(ctx context.Context, c redis.Cmdable) (string, error) {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if id, found := strings.CutPrefix(lines.Text(), "run_id:"); found && id != "" {
			return id, nil
		}
	}
	return "", errors.New("the server does not tell its run_id (INFO server), by which its data is known")
}

// Fixed names a Redis that lives and dies with this process, and so is empty whenever it is another one.
func FixedID(name string) Identify {
	return func(context.Context, redis.Cmdable) (string, error) { return name, nil }
}

// sight is one look at a server: who it is, and what each shard says.
type observation struct {
	runID   string
	records []record
}

func observe(ctx context.Context, c redis.Cmdable, identify Identify, space keyspace.Space) (observation, error) {
	id, err := identify(ctx, c)
	if err != nil {
		return observation{}, err
	}
	s := observation{runID: id}
	for _, shard := range space.All() {
		fields, err := c.HGetAll(ctx, shard.Guard()).Result()
		if err != nil {
			return observation{}, err
		}
		s.records = append(s.records, parseRecord(fields))
	}
	return s, nil
}

// verified tells whether every shard was verified on this very server, as one generation, and not before the generation least; or why not.
func (s observation) verified(least int64) (generation int64, why string) {
	generation = s.records[0].Generation
	for _, m := range s.records {
		switch {
		case m.Shards != 0 && m.Shards != int64(len(s.records)):
			return 0, (&ShardsError{Redis: m.Shards, Process: len(s.records)}).Error()
		case m.Rebuilding:
			return 0, "it is being rebuilt"
		case m == record{}:
			return 0, "it is new or was emptied"
		case m.RunID != s.runID:
			return 0, "it has started again or is another server"
		case m.Generation != generation:
			return 0, "its shards were verified at different times"
		case m.Generation < least:
			return 0, fmt.Sprintf("its data is of generation %d, and there was a generation %d", m.Generation, least)
		}
	}
	return generation, ""
}

// ShardsError says that Redis holds its orders in another number of shards than this process was told.
type ShardsError struct {
	Redis   int64
	Process int
}

func (e *ShardsError) Error() string {
	return fmt.Sprintf("Redis holds its orders in %d shards, and this process was told %d (--shards)", e.Redis, e.Process)
}

// Newest is the highest number of a rebuild that any shard of Redis has heard of; 0 when there is none. An error wraps sale.ErrUnavailable.
func NewestFence(ctx context.Context, c redis.Cmdable, space keyspace.Space) (int64, error) {
	var newest int64
	for _, shard := range space.All() {
		fields, err := c.HGetAll(ctx, shard.Guard()).Result()
		if err != nil {
			return 0, fmt.Errorf("guard: %w: %w", sale.ErrUnavailable, err)
		}
		m := parseRecord(fields)
		newest = max(newest, m.Fence, m.Generation, m.Swapped)
	}
	return newest, nil
}

// CheckShards returns a *ShardsError if Redis says that there are other shards than those of the space. Nothing is certain when it says nothing. Any other error
// is that of Redis.
func CheckShards(ctx context.Context, c redis.Cmdable, space keyspace.Space) error {
	shards := space.All()
	fields, err := c.HGetAll(ctx, shards[0].Guard()).Result()
	if err != nil {
		return fmt.Errorf("guard: %w: %w", sale.ErrUnavailable, err)
	}
	if m := parseRecord(fields); m.Shards != 0 && m.Shards != int64(len(shards)) {
		return &ShardsError{Redis: m.Shards, Process: len(shards)}
	}
	return nil
}
