package rebuild_test

import (
	"slices"
	"testing"

	"sluice/backend/admission"
)

// Messages and texts in the stream, ready or leased, move to the list with their serial and in their order.
func TestRebuildOfAnIntactStreamKeepsItsQueue(t *testing.T) {
	w := newWorld(t)
	w.admit = w.admitter(func(c *admission.Config) { c.Stream = true })
	w.fill("s")
	before := w.audit("s")
	shard := space.ShardOf("s")
	if err := w.raw().Do(w.ctx, "XADD", shard.Orders(), "*", "m", "no message").Err(); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.want("s", before.Left, before.Ready+before.Delayed+before.Leased, before.Ordered, before.Dead, 0)
	for _, s := range w.rebuild.Status().Sales {
		if s.Requeued != 0 || s.Unbacked != 0 || s.Corrected != 0 || !s.Balanced {
			t.Errorf("the rebuild changed an intact stream: %+v", s)
		}
	}
	if n := w.raw().XLen(w.ctx, shard.Orders()).Val(); n != 0 {
		t.Errorf("%d entries remain in the stream", n)
	}
	if texts := w.raw().LRange(w.ctx, shard.Ready(), 0, -1).Val(); !slices.Contains(texts, "no message") {
		t.Errorf("the text that is not a message is missing: %q", texts)
	}
	w.drain()
	w.want("s", before.Left, 0, 8, 1, 0)
}
