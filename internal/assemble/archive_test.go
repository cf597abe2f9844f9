package assemble

import (
	"errors"
	"path/filepath"
	"testing"

	"sluice/test/testenv"
)

// A sale that several shards sold together is archived.
func TestArchiveOfASaleInSeveralShards(t *testing.T) {
	ctx := t.Context()
	redis, database := testenv.StartRedis(t).URL, "sqlite:"+filepath.Join(t.TempDir(), "orders.db")
	b := newShardedBackend(t, redis, database, 2)
	if err := errors.Join(b.Verify(ctx), b.Admin.RunOnce(ctx)); err != nil {
		t.Fatal(err)
	}
	wanted := newSale()
	wanted.Stock, wanted.Spread = 10, 2
	if _, err := b.Admin.Create(ctx, "test", wanted); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Admin.Close(ctx, "test", wanted.ID); err != nil {
		t.Fatal(err)
	}
	if a, err := b.stores.Archive(ctx, wanted.ID, t.TempDir()); err != nil || a.EndedAt.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
}
