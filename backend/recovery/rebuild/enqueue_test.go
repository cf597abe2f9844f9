package rebuild_test

import (
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
)

// A client sends a pipeline again when its reply is lost, also when only a part of it was carried out.
func TestMessagesThatAreSentTwiceAreQueuedOnce(t *testing.T) {
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer client.Close()
	shard, push := keyspace.Shard(0), redisscript.Load("rebuild_enqueue")
	mini.HSet(shard.Guard(), "fence", "7")
	run := func(fence, before int, messages ...any) (string, error) {
		return push.Run(t.Context(), client, []string{shard.Guard(), shard.RebuildReady()}, append([]any{fence, before}, messages...)...).Text()
	}
	for _, step := range []struct {
		before   int
		messages []any
	}{{0, []any{"a", "b"}}, {0, []any{"a", "b"}}, {2, []any{"c"}}, {0, []any{"a", "b"}}, {2, []any{"c"}}, {3, []any{"d"}}} {
		if answer, err := run(7, step.before, step.messages...); answer != "ok" || err != nil {
			t.Fatalf("%v behind %d: %q, %v", step.messages, step.before, answer, err)
		}
	}
	if answer, err := run(6, 4, "e"); answer != "fenced" || err != nil {
		t.Errorf("an older rebuild: %q, %v", answer, err)
	}
	if _, err := run(7, 9, "f"); err == nil {
		t.Error("messages are missing, and nobody is told")
	}
	if got, err := mini.List(shard.RebuildReady()); err != nil || !slices.Equal(got, []string{"d", "c", "b", "a"}) {
		t.Errorf("queued: %v, %v", got, err)
	}
}
