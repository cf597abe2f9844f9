package assemble

import "testing"

func TestOpenPagesLeaveDescriptorsForPurchases(t *testing.T) {
	for _, c := range []struct{ files, each, pages, streams int }{
		{0, 1, 20_000, 10_000}, // not known
		{1 << 20, 1, 20_000, 10_000},
		{40_000, 1, 20_000, 10_000},
		{20_000, 1, 10_000, 5_000},
		{20_000, 3, 3_333, 1_666}, // gateway and backend in one process
		{1024, 1, 512, 256},
		{1, 3, 1, 1},
	} {
		pages, streams := streamRoom(c.files, c.each)
		if pages != c.pages || streams != c.streams {
			t.Errorf("%d files, %d for each: %d pages and %d streams, want %d and %d", c.files, c.each, pages, streams, c.pages,
				c.streams)
		}
		if c.files > 3 && (pages+streams)*c.each > c.files*3/4 {
			t.Errorf("%d files: streams take %d of them", c.files, (pages+streams)*c.each)
		}
	}
}
