package nginx

import (
	"cmp"
	"fmt"
	"os"
	"testing"
)

// How many buckets a zone holds, and so how many bytes one takes: what nginx/conf.d/20-lua.conf and docs/edge-bound.md say. `make edge-memory` asks a zone
// of 100 MB.
func TestWhatAZoneHolds(t *testing.T) {
	size := cmp.Or(os.Getenv("SLUICE_ZONE"), "4m")
	for _, c := range []struct {
		name, admit string // admit(i) admits a request of the i-th client
		most        float64
	}{
		{"an IPv4 address under a rule", `rules.admit({ rule }, { "ip:20r/s:" .. four(i) }, 1)`, 130},
		{"an IPv6 network under a rule", `rules.admit({ rule }, { "ip:20r/s:" .. "2001" .. four(i) }, 1)`, 130},
		{"a buyer with an id of 36 letters", `rules.admit({ rule }, { "token:2r/s:" .. ("%036d"):format(i) }, 1)`, 130},
		{"a buyer with an id of 100 letters", `rules.admit({ rule }, { "token:2r/s:" .. ("%050d%050d"):format(i, i) }, 1)`, 260},
		{"sluice.limit.req, an IPv4 address", `limit:incoming(four(i), true)`, 130},
		{"sluice.limit.req, an IPv6 address", `limit:incoming("0123456789ab" .. four(i), true)`, 130},
	} {
		server, stop := startLua(t, size)
		got := server.run(t, `
			local rules, zone = require "sluice.limit.rules", ngx.shared.sluice_buckets
			local rule = { count = 1, period = 3600e6, tolerance = 0, failed = "error test" }
			local limit = require("sluice.limit.req").new("sluice_buckets", 1 / 3600, 0)
			local char, floor = string.char, math.floor
			local function four(i) return char(floor(i / 16777216) % 256, floor(i / 65536) % 256, floor(i / 256) % 256, i % 256) end
			local n = 0
			for i = 1, 1e8 do
				if not `+c.admit+` then break end
				n = i
			end
			return ("%d %d"):format(n, zone:capacity())
		`)
		stop()
		var n, capacity float64
		if _, err := fmt.Sscan(got, &n, &capacity); err != nil {
			t.Fatal(err)
		}
		t.Logf("%-36s %8.0f in %s, %.0f bytes each", c.name, n, size, capacity/n)
		if capacity/n > c.most {
			t.Errorf("%s: a bucket takes %.0f bytes, more than the %.0f that the documentation states", c.name, capacity/n, c.most)
		}
	}
}
