package events_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/test/testenv"
)

// A later event may be acknowledged first: the position stays before the first unacknowledged one.
func TestProgressHasNoGaps(t *testing.T) {
	on(t, func(w *world) {
		if _, err := w.store.AddGroup(w.Context(), "g", false); err != nil {
			w.Fatal(err)
		}
		if err := w.raw.XGroupCreateMkStream(w.Context(), space.Events(), "g", "0").Err(); err != nil {
			w.Fatal(err)
		}
		w.buy(6)
		r := w.relay(events.RelayConfig{})
		for n := 0; n < 6; {
			moved, err := r.RunOnce(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			n += moved
		}
		progress := events.NewProgress(w.raw, space, w.store, "g")
		want := func(position int64) {
			w.Helper()
			testenv.Eventually(w, patience, "the position is as expected",
				func() bool { return progress.Position(w.Context()) == position })
		}
		read := func(consumer string, n int64) []string {
			streams, err := w.raw.XReadGroup(w.Context(),
				&redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{space.Events(), ">"}, Count: n}).
				Result()
			if err != nil {
				w.Fatal(err)
			}
			var ids []string
			for _, m := range streams[0].Messages {
				ids = append(ids, m.ID)
			}
			return ids
		}
		ack := func(ids ...string) {
			if err := w.raw.XAck(w.Context(), space.Events(), "g", ids...).Err(); err != nil {
				w.Fatal(err)
			}
		}
		want(0)
		slow, quick := read("a", 2), read("b", 3)
		want(0)
		ack(quick...)
		want(0)
		ack(slow[0])
		want(1)
		ack(slow[1])
		want(5)
		// Redis is emptied: the position stays.
		if err := w.raw.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		want(5)
		// Another process reads the position from SQL after all groups have acknowledged.
		if err := w.store.DeleteChanges(w.Context(), 6); err != nil {
			w.Fatal(err)
		}
		progress = events.NewProgress(w.raw, space, w.store, "g")
		want(6)
	})
}
