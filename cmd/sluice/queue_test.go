package main

import (
	"strings"
	"testing"

	"sluice/client"
)

func TestQueueBoundOfOneOrder(t *testing.T) {
	var b strings.Builder
	printQueue(&b, client.Queue{MaxReady: 1})
	if !strings.Contains(b.String(), "a shard with 1 ready order rejects purchases") {
		t.Error(b.String())
	}
}

// If no order leaves a shard, a text replaces the time of the shard and that of the sum. Without a second sample both
// times are unknown.
func TestQueueThatNothingLeaves(t *testing.T) {
	rate, empty := 0.0, 0.0
	for want, shards := range map[string][]client.QueueShard{
		"? ?": {{}, {Shard: 1}},
		"nothing leaves the queue nothing leaves the queue": {{DrainedPerSecond: &rate}, {Shard: 1}},
		"0s ?": {{DrainedPerSecond: &rate, QueueCounts: client.QueueCounts{DrainSeconds: &empty}}, {Shard: 1}},
	} {
		var b strings.Builder
		printQueue(&b, client.Queue{Shards: shards})
		lines := strings.Split(b.String(), "\n")
		at := strings.Index(lines[0], "IN SQL WITHIN")
		if got := lines[1][at:] + " " + lines[3][at:]; got != want {
			t.Errorf("%q, want %q:\n%s", got, want, &b)
		}
	}
}
