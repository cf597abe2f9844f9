package sim

import (
	"context"

	"sluice/backend/store"
)

// Generation is part of a guard's look; see isLook.
func (s faultyStore) Generation(context.Context) (n int64, err error) {
	err = s.p.look(func() (err error) { n, err = s.Store.Generation(context.Background()); return err })
	return n, err
}

// Journals is asked again and again while a rebuild waits: it is a look as well.
func (s faultyStore) Journals(context.Context) (got []store.Journal, err error) {
	err = s.p.look(func() (err error) { got, err = s.Store.Journals(context.Background()); return err })
	return got, err
}

func (s faultyStore) NextFence(_ context.Context, above int64) (n int64, err error) {
	err = s.call("sql next fence", func(ctx context.Context) (err error) { n, err = s.Store.NextFence(ctx, above); return err })
	return n, err
}

func (s faultyStore) BeginGeneration(_ context.Context, fence int64) error {
	return s.call("sql begin generation", func(ctx context.Context) error { return s.Store.BeginGeneration(ctx, fence) })
}

func (s faultyStore) BeatJournal(_ context.Context, id string, adopted int64) error {
	return s.call("sql beat journal", func(ctx context.Context) error { return s.Store.BeatJournal(ctx, id, adopted) })
}
