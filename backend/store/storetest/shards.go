package storetest

import "testing"

// The first call sets the number of shards.
func shardsAreClaimedOnce(t *testing.T, e *env) {
	for _, want := range []int{4, 4, 1, 8} {
		if have, err := e.ClaimShards(e.ctx, want); err != nil || have != 4 {
			t.Errorf("claim of %d shards after one of 4 returned %d, %v", want, have, err)
		}
	}
}

// A database that was used before the number was recorded has one shard.
func shardsOfAnOlderDatabase(t *testing.T, e *env) {
	e.begin(t)
	if have, err := e.ClaimShards(e.ctx, 4); err != nil || have != 1 {
		t.Errorf("after a rebuild without a recorded number: %d shards, %v; want 1", have, err)
	}
}
