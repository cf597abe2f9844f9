// Package move moves one shard of a Redis Cluster to another master without a rebuild.
//
// A move holds the shard as a rebuild does, copies its keys, compares both servers, changes the owner of the slot, and
// marks the data on the new server as verified. The source keeps all data until the owner changes. A move that stops
// before that leaves the shard held on the source; a move that stops later leaves it held on the target. In both cases
// a backend rebuilds the shard. Only if a move stops in the milliseconds in which the owner changes, the next Move to
// the same master, or to the one that has replaced it, must finish it.
//
// The scripts on both servers check the fence of the move, so a process that was suspended past its lock changes
// nothing.
//
// A move passes through these files:
//
//	job.go          the order of the steps, and the locks
//	servers.go      both masters are found and connected
//	hold.go         the shard stops on the source, and continues on the target or, after an error, on the source
//	copy.go         the keys are copied to the target
//	verify.go       both servers are compared
//	owner.go        the slot changes its owner
//	interrupted.go  instead of all that, an interrupted move is finished
package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// Config configures a Mover.
type Config struct {
	Server *redisconn.Server // the cluster; required
	Store  rebuild.Fences    // required
	Space  keyspace.Space
	// Progress, if set, is called before each step, and before each part of the copy with the number of keys.
	Progress func(step string, done, total int)
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Result describes a move.
type Result struct {
	Shard    keyspace.Shard
	From, To string        // addresses of the masters; equal if the shard was on the target before
	Keys     int           // keys copied
	Held     time.Duration // time for which the shard sold nothing
	// Verified reports that the shard sells on the target. Otherwise the move finished an interrupted one, and a backend
	// rebuilds the shard.
	Verified bool
}

const (
	// lockDuration is the time that the lock of a crashed move delays the rebuild. A running move renews the lock.
	lockDuration = 5 * time.Second
	// migrateTimeout bounds the time for which the source waits for the target. All its shards wait meanwhile, and other
	// nodes suspect it after cluster-node-timeout.
	migrateTimeout = 1500 * time.Millisecond
	// copyChunk is the number of keys that the source sends together.
	copyChunk = 50
	// pipelineSize is the number of commands, and of keys of a script, per round trip.
	pipelineSize = 1000
	// replicaTimeout bounds the wait for the replicas of the target.
	replicaTimeout = 5 * time.Second
	// settleTimeout bounds the wait until the source has deleted its copy.
	settleTimeout = 10 * time.Second
	// abandonTimeout bounds the attempt to release the shard on the source.
	abandonTimeout = 5 * time.Second
)

// Mover moves shards. It is safe for concurrent use.
type Mover struct {
	cfg  Config
	lock time.Duration // lockDuration; longer in tests
}

// New returns a Mover.
func New(cfg Config) (*Mover, error) {
	if cfg.Server == nil || cfg.Store == nil {
		return nil, errors.New("move: Config needs Server and Store")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Progress == nil {
		cfg.Progress = func(string, int, int) {}
	}
	return &Mover{cfg, lockDuration}, nil
}

// ErrInterrupted reports that the context of Move ended.
var ErrInterrupted = errors.New("the move was interrupted")

// Move moves a shard to the master with the address to, or finishes such a move that was interrupted. If the shard is
// there already, it changes nothing. If it returns an error, the shard continues on the old master, or a backend
// rebuilds it, unless the error has another remedy. If ctx ends before the copy is complete, the move is abandoned. If
// ctx ends later, the move is completed.
func (m *Mover) Move(ctx context.Context, shard keyspace.Shard, to string) (Result, error) {
	j := &job{Mover: m, shard: shard, result: Result{Shard: shard, To: to}}
	defer j.close()
	if err := j.connect(ctx, to); err != nil {
		return j.result, j.failure(ctx, err)
	}
	if j.source.id == j.target.id {
		j.result.Verified = true
		return j.result, nil
	}
	run := j.move
	if j.interrupted != "" {
		run = j.finish
	}
	if err := run(ctx); err != nil {
		return j.result, j.failure(ctx, err)
	}
	return j.result, nil
}

// failure returns the error of Move for one of its parts. If ctx has ended, the error has the state of the shard and
// the remedy. After the hold only the copy depends on ctx, and abandon ends it.
func (j *job) failure(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("move shard %d: %w", j.shard, err)
	}
	state := "nothing has changed"
	switch {
	case j.interrupted != "":
		state = "an earlier move of the shard is incomplete"
	case j.kept != nil:
		state = fmt.Sprintf("a backend rebuilds the shard on %s (%v)", j.source.addr, j.kept)
	case j.source.id != j.target.id:
		state = "the shard continues on " + j.source.addr
	}
	return fmt.Errorf("move shard %d: %w, and %s; run it again: sluice shard move %d --to %s",
		j.shard, ErrInterrupted, state, j.shard, j.result.To)
}
