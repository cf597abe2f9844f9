package move_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/move"
	"sluice/test/testenv"
)

var errKilled = errors.New("the process was killed")

// A move that stops at any step loses nothing. Before the owner changes, and after it, a backend rebuilds the shard; in
// between, the next move finishes it.
func TestMoveStopsAtAnyStep(t *testing.T) {
	for _, c := range []struct {
		step     string
		nth      int // occurrence of the step
		onTarget bool
		finish   bool
	}{
		{"hold", 1, false, false}, {"copy", 1, false, false}, {"copy", 3, false, false}, {"verify", 1, false, false},
		{"mark", 1, false, false}, {"flip", 1, true, true}, {"release", 1, true, false},
	} {
		t.Run(fmt.Sprint(c.step, c.nth), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			n := 0
			w.stopAt = func(step string) error {
				if step == c.step {
					if n++; n == c.nth {
						return errKilled
					}
				}
				return nil
			}
			if result, err := w.move(target); !errors.Is(err, errKilled) {
				t.Fatalf("%+v, %v", result, err)
			}
			w.stopAt = func(string) error { return nil }
			if c.finish {
				err := w.runIf()
				remedy := fmt.Sprintf("sluice shard move %d --to %s", w.shard, target.Addr)
				if err == nil || !strings.Contains(err.Error(), remedy) {
					t.Errorf("a rebuild of a half moved shard: %v, want %q", err, remedy)
				}
				third := w.cluster.Nodes[slices.IndexFunc(w.cluster.Nodes, func(n *testenv.Redis) bool {
					return n != source && n != target
				})]
				if _, err := w.move(third); err == nil || !strings.Contains(err.Error(), remedy) {
					t.Errorf("a move to another master: %v, want %q", err, remedy)
				}
				if result, err := w.move(target); err != nil || result.Verified {
					t.Fatalf("finished: %+v, %v", result, err)
				}
			}
			w.recover()
			on, back := source, target
			if c.onTarget {
				on, back = target, source
			}
			w.check(on)
			// what the interrupted move left is no obstacle
			if result, err := w.move(back); err != nil || !result.Verified {
				t.Fatalf("%+v, %v", result, err)
			}
			w.check(back)
		})
	}
}

// An interrupt abandons a move before the owner changes. After that, the move ends as usual: otherwise the shard would
// wait for another command, or for a rebuild.
func TestInterruptedMove(t *testing.T) {
	for step, moves := range map[string]bool{
		"begin": false, "generation": false, "copy": false, "verify": false, "mark": true, "flip": true, "release": true,
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			interrupted, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			w.ctx = interrupted
			w.stopAt = func(name string) error {
				if name == step {
					interrupt()
				}
				return nil
			}
			switch step {
			case "begin":
				w.db.read = interrupt
			case "generation":
				w.db.began = interrupt
			}
			result, err := w.move(target)
			on := source
			if moves {
				on = target
			}
			if (err == nil) != moves || result.Verified != moves {
				t.Errorf("%+v, %v", result, err)
			}
			want := fmt.Sprintf("move shard %d: the move was interrupted, and the shard continues on %s; "+
				"run it again: sluice shard move %d --to %s", int(result.Shard), source.Addr, int(result.Shard), target.Addr)
			if err != nil && (err.Error() != want || !errors.Is(err, move.ErrInterrupted)) {
				t.Errorf("%v, want %s", err, want)
			}
			testenv.Eventually(t, time.Minute, "the shard is verified without a rebuild", w.verified)
			w.unmarked("interrupted")
			w.check(on)
		})
	}
}

// killAtFlip moves the shard with a process that is killed while the owner changes.
func (w *world) killAtFlip(target *testenv.Redis) {
	w.t.Helper()
	w.stopAt = func(step string) error {
		if step == "flip" {
			return errKilled
		}
		return nil
	}
	if result, err := w.move(target); !errors.Is(err, errKilled) {
		w.t.Fatalf("%+v, %v", result, err)
	}
	w.stopAt = func(string) error { return nil }
}

// If the target is replaced by its replica while the owner changes, the move is finished on the replica.
func TestMoveIsFinishedOnTheReplicaOfTheTarget(t *testing.T) {
	w := newWorldOn(t, testenv.StartRedisCluster(t, 3))
	target := w.other()
	replica := w.cluster.Partner(target)
	w.killAtFlip(target)
	w.cluster.Replace(target, testenv.Complete, nil)
	w.cluster.Rejoin(target)
	testenv.Eventually(t, time.Minute, "the error names the master of the replica", func() bool {
		_, err := w.move(target)
		t.Log(err)
		return err != nil && strings.Contains(err.Error(), "is a replica: name its master, "+replica.Addr)
	})
	third := w.cluster.Nodes[slices.IndexFunc(w.cluster.Nodes, func(n *testenv.Redis) bool {
		return n != w.owner() && n != target && n != replica && w.cluster.IsMaster(n)
	})]
	remedy := fmt.Sprintf("sluice shard move %d --to %s", w.shard, replica.Addr)
	if _, err := w.move(third); err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("a move to another master: %v, want %q", err, remedy)
	}
	if result, err := w.move(replica); err != nil || result.Verified {
		t.Fatalf("finished: %+v, %v", result, err)
	}
	w.recover()
	w.check(replica)
}

// A mover that is suspended past its lock changes nothing when a backend has rebuilt the shard, or another move has
// finished, meanwhile.
func TestSuspendedMoverChangesNothing(t *testing.T) {
	for _, at := range []string{"copy", "mark", "flip", "release"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			on := source
			suspended, returned := false, false
			w.lock = time.Minute
			w.stopAt = func(step string) error {
				if suspended && at == "copy" && !returned {
					t.Errorf("the suspended mover copies keys, and continues with %s", step)
				}
				if step != at || suspended {
					return nil
				}
				suspended = true
				_ = source.Client().Del(t.Context(), w.shard.RebuildLock()).Err() // the locks expire
				onImporter(t, target, "DEL", w.shard.RebuildLock())
				w.lock = 0
				switch step {
				case "flip":
					on = target
					testenv.Eventually(t, time.Minute, "another move finishes", func() bool {
						result, err := w.move(target)
						return err == nil && !result.Verified
					})
				case "release":
					on = target
				}
				w.recover()
				w.check(on)
				return nil
			}
			if result, err := w.move(target); err == nil {
				t.Errorf("the suspended move succeeded: %+v", result)
			}
			returned = true
			w.check(on)
			if _, err := w.move(map[bool]*testenv.Redis{true: target, false: source}[on == source]); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that is suspended while it finishes an interrupted move changes nothing when another one has finished it
// and the shard has moved back.
func TestSuspendedFinishChangesNothing(t *testing.T) {
	for at, want := range map[string]string{"finish": "another process has finished", "flip": guard.ErrFenced.Error()} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			w.killAtFlip(target)
			w.lock = time.Minute
			suspended := false
			w.stopAt = func(step string) error {
				if step != at || suspended {
					return nil
				}
				suspended = true
				onImporter(t, target, "DEL", w.shard.RebuildLock()) // it expires
				w.lock = 0
				if _, err := w.move(target); err != nil {
					t.Error(err)
				}
				w.recover()
				if _, err := w.move(source); err != nil {
					t.Error(err)
				}
				// As after a move of another shard to the target: its claims to slots win.
				if err := target.Client().Do(t.Context(), "CLUSTER", "BUMPEPOCH").Err(); err != nil {
					t.Error(err)
				}
				w.check(source)
				return nil
			}
			if result, err := w.move(target); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the suspended process: %+v, %v", result, err)
			}
			w.check(source)
		})
	}
}

// A process that is suspended while it copies the keys of an interrupted move copies none when another process finishes
// the move, although the source does not know the new owner yet.
func TestSuspendedFinishCopiesNothing(t *testing.T) {
	w := newWorld(t)
	target := w.other()
	w.killAtFlip(target)
	w.lock = time.Minute
	copies := 0
	w.stopAt = func(step string) error {
		if step != "copy" {
			return nil
		}
		if copies++; copies > 1 {
			return errKilled // before it copies a key
		}
		onImporter(t, target, "DEL", w.shard.RebuildLock()) // it expires
		if result, err := w.move(target); !errors.Is(err, errKilled) {
			t.Errorf("the other process: %+v, %v", result, err)
		}
		onImporter(t, target, "DEL", w.shard.Ready()) // empty, after the shard was rebuilt
		return nil
	}
	if result, err := w.move(target); err == nil || errors.Is(err, errKilled) {
		t.Errorf("the suspended process: %+v, %v", result, err)
	}
	if copies != 2 {
		t.Errorf("%d processes copied keys", copies)
	}
	keys := target.Client().ClusterGetKeysInSlot(t.Context(), w.cluster.Slot(w.shard.Guard()), 1000).Val()
	if slices.Contains(keys, w.shard.Ready()) {
		t.Error("the suspended process copied the queue")
	}
	w.stopAt, w.lock = func(string) error { return nil }, 0
	onImporter(t, target, "DEL", w.shard.RebuildLock())
	if result, err := w.move(target); err != nil || result.Verified {
		t.Fatalf("finished: %+v, %v", result, err)
	}
	w.recover()
	w.check(target)
}
