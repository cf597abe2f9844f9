package rebuild_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// The client repeats a pipeline after a lost reply, also if a part of it was executed.
func TestRepeatedMessagesAreQueuedOnce(t *testing.T) {
	mini := miniredis.RunT(t)
	client := testenv.NewClient(mini.Addr())
	defer client.Close()
	shard, enqueue := keyspace.Shard(0), redisscript.Load("rebuild_enqueue")
	mini.HSet(shard.Guard(), "fence", "7")
	run := func(fence, before int, messages ...any) (string, error) {
		args := append([]any{fmt.Sprint(fence, " 0"), before}, messages...)
		return enqueue.Run(t.Context(), client, []string{shard.Guard(), shard.RebuildReady()}, args...).Text()
	}
	for _, step := range []struct {
		before   int
		messages []any
	}{
		{0, []any{"a", "b"}}, {0, []any{"a", "b"}}, {2, []any{"c"}}, {0, []any{"a", "b"}}, {2, []any{"c"}}, {3, []any{"d"}},
	} {
		if result, err := run(7, step.before, step.messages...); result != "ok" || err != nil {
			t.Fatalf("%v after %d messages: %q, %v", step.messages, step.before, result, err)
		}
	}
	if result, err := run(6, 4, "e"); result != "fenced" || err != nil {
		t.Errorf("an older rebuild: %q, %v", result, err)
	}
	if _, err := run(7, 9, "f"); err == nil {
		t.Error("no error for missing messages")
	}
	if got, err := mini.List(shard.RebuildReady()); err != nil || !slices.Equal(got, []string{"d", "c", "b", "a"}) {
		t.Errorf("queue %v, %v", got, err)
	}
}
