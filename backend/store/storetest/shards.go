package storetest

import "testing"

// The first to ask decides, and it is remembered; a database that was used before there was a choice has one shard.
func shardsAreClaimedOnce(t *testing.T, e *env) {
	for _, want := range []int{4, 4, 1, 8} {
		if have, err := e.ClaimShards(e.ctx, want); err != nil || have != 4 {
			t.Errorf("%d shards are asked for, after 4: there are %d, %v", want, have, err)
		}
	}
}

func shardsOfAnOlderDatabase(t *testing.T, e *env) {
	e.begin(t)
	if have, err := e.ClaimShards(e.ctx, 4); err != nil || have != 1 {
		t.Errorf("after a rebuild that knew of no shards, there are %d, %v; want 1", have, err)
	}
}
