package rebuild_test

import "testing"

// A master that fails over while redis-cli moves its slot can have dead letters without their index: the new master
// does not know about the move, and lacks the keys that were moved. The rebuild finds the dead letters, and its audit
// repairs the index.
func TestRebuildOfDeadLettersWithoutTheirIndex(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	index := space.ShardOf("s").Dead().Index()
	if n := w.raw().Del(w.ctx, index).Val(); n != 1 {
		t.Fatalf("deleted %d keys", n)
	}
	w.run()
	w.want("s", 21, 4, 4, 1, 0)
	if n := w.raw().ZCard(w.ctx, index).Val(); n != 1 {
		t.Errorf("the index has %d lines, want 1", n)
	}
}
