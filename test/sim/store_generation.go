package sim

import (
	"context"

	"sluice/backend/recovery/journal"
)

// Generation is part of a guard's look; see isLook.
func (s faultyStore) Generation(context.Context) (n int64, err error) {
	err = s.p.look(func() (err error) { n, err = s.tables.Generation(context.Background()); return err })
	return n, err
}

// Journals is polled while a rebuild waits, so it counts as a read without effects.
func (s faultyStore) Journals(context.Context) (got []journal.Status, err error) {
	err = s.p.look(func() (err error) { got, err = s.tables.Journals(context.Background()); return err })
	return got, err
}

func (s faultyStore) NextFence(_ context.Context, above int64) (n int64, err error) {
	err = s.call(
		"sql next fence",
		func(ctx context.Context) (err error) { n, err = s.tables.NextFence(ctx, above); return err },
	)
	return n, err
}

func (s faultyStore) BeginGeneration(_ context.Context, fence int64) error {
	return s.call("sql begin generation", func(ctx context.Context) error { return s.tables.BeginGeneration(ctx, fence) })
}

func (s faultyStore) Heartbeat(_ context.Context, id string, generation int64) error {
	return s.call("sql heartbeat", func(ctx context.Context) error { return s.tables.Heartbeat(ctx, id, generation) })
}
