package nginx

import (
	"cmp"
	"fmt"
	"os"
	"testing"
)

// The bytes of a bucket, as nginx/conf.d/20-lua.conf and docs/edge-bound.md state them. `make edge-memory` fills a
// zone of 100 MB.
func TestBucketsTakeTheStatedMemory(t *testing.T) {
	variants(t, bucketsTakeTheStatedMemory)
}

func bucketsTakeTheStatedMemory(t *testing.T, f *variant) {
	size := cmp.Or(os.Getenv("SLUICE_ZONE"), "4m")
	for _, c := range []struct {
		name, admit string // admit(i) admits a request of the i-th client
		most        float64
	}{
		{"an address under a rule", `admit(four(i))`, map[bool]float64{true: 130, false: 50}[f.plain]},
		{"a buyer under a rule", `admit(("%036d"):format(i))`, map[bool]float64{true: 260, false: 50}[f.plain]},
		{"sluice.limit.req, an IPv4 address", `limit:incoming(four(i), true)`, 130},
		{"sluice.limit.req, an IPv6 address", `limit:incoming("0123456789ab" .. four(i), true)`, 130},
	} {
		server, stop := f.startLuaWith(t, "eval.conf", "sluice_buckets 1m;\n    lua_shared_dict test           256k",
			"sluice_buckets "+size+";\n    lua_shared_dict test           "+size)
		got := server.run(t, `
			local rules = require "sluice.limit.rules"
			local rule = { count = 1, period = 3600e6, tolerance = 0, failed = "error test", prefix = "ip:20r/s:" }
			rules.prepare(rule)
			local list = { rule }
			local function admit(client)
				rules.aim(list, 1, 1, client)
				return rules.admit(list, 1)
			end
			local limit = require("sluice.limit.req").new("test", 1 / 3600, 0)
			local char, floor = string.char, math.floor
			local function four(i) return char(floor(i / 16777216) % 256, floor(i / 65536) % 256, floor(i / 256) % 256, i % 256) end
			local n = 0
			for i = 1, 1e8 do
				if not `+c.admit+` then break end
				n = i
			end
			return ("%d %d"):format(n, ngx.shared.test:capacity())
		`)
		stop()
		var n, capacity float64
		if _, err := fmt.Sscan(got, &n, &capacity); err != nil {
			t.Fatal(err)
		}
		t.Logf("%-36s %8.0f in %s, %.0f bytes each", c.name, n, size, capacity/n)
		if capacity/n > c.most {
			t.Errorf("%s: a bucket takes %.0f bytes, more than the %.0f that the documentation states", c.name, capacity/n,
				c.most)
		}
	}
}
