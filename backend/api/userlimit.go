package api

import (
	"fmt"
	"math"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

// errLimited is the problem without its headers, which limit adds.
var errLimited = rateLimited(userPolicy, "Too many purchase requests. Please slow down.")

// rateLimited returns the problem for a violated policy.
func rateLimited(policy, detail string) *httpserver.Problem {
	d := problem.New(problem.RateLimited, detail)
	d.ViolatedPolicies = []string{policy}
	return httpserver.ProblemOf(d)
}

// userPolicy names the per-user limit in RateLimit headers.
const userPolicy = "user"

// limit counts one purchase request of a buyer, and returns a problem if the buyer has too many.
func (h *handlers) limit(buyer string) error {
	if h.cfg.Limiter == nil {
		return nil
	}
	r := h.cfg.Limiter.Allow(h.reads.next(), buyer)
	if r.Local {
		h.metrics.countedHere.Inc()
	}
	if r.Allowed {
		return nil
	}
	wait := max(0, r.Reset.Sub(h.Now()))
	// The headers of draft-ietf-httpapi-ratelimit-headers-11. No other code formats them, because the draft still
	// renames its parameters.
	window := int64(math.Ceil(r.Period.Seconds()))
	policy := fmt.Sprintf(`"%s";q=%d;w=%d`, userPolicy, r.Limit, window)
	state := fmt.Sprintf(`"%s";r=%d;t=%s`, userPolicy, r.Remaining, httpserver.Seconds(wait))
	return errLimited.With(httpserver.Header{Name: fiber.HeaderRetryAfter, Value: h.RetryAfter(wait)},
		httpserver.Header{Name: "RateLimit-Policy", Value: policy}, httpserver.Header{Name: "RateLimit", Value: state})
}
