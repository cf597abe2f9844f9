package nginx

import "testing"

// The random part of Retry-After is a tenth of the wait, at least one second and at most an hour, as at the Go gateway.
func TestRetryAfterIsBounded(t *testing.T) {
	server := requireLua(t)
	got := server.run(t, `
		local retry_after = require("sluice.quota").retry_after
		local function range(wait) -- whole seconds
			local least, most = math.huge, 0
			for _ = 1, 20000 do
				local n = tonumber((retry_after(wait * 1000000)))
				least, most = math.min(least, n - wait), math.max(most, n - wait)
			end
			return least .. " to " .. most
		end
		local long = range(360000)
		local most = tonumber(long:match("to (%d+)$"))
		return range(1) .. ", " .. range(100) .. ", " .. tostring(most > 3000 and most <= 3600)
	`)
	if got != "0 to 1, 0 to 10, true" {
		t.Errorf("the random parts are %s", got)
	}
}
