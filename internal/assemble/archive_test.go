package assemble

import (
	"testing"

	"sluice/backend/sale"
)

// A sale with segments in several shards is archived.
func TestArchiveOfASaleInSeveralShards(t *testing.T) {
	ctx := t.Context()
	b, sold := newSpreadSale(t)
	if _, err := b.Admin.SetSwitch(ctx, sold.ID, sale.Closed); err != nil {
		t.Fatal(err)
	}
	if a, err := b.stores.Archive(ctx, sold.ID, t.TempDir()); err != nil || a.EndedAt.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
}
