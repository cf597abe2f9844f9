package api

import (
	"fmt"
	"math"

	"github.com/gofiber/fiber/v2"

	"sluice/internal/problem"
)

// errLimited is completed by limit.
var errLimited = func() *refusal {
	d := problem.New(problem.RateLimited, "Too many purchase requests of one buyer. Please slow down.")
	d.ViolatedPolicies = []string{userPolicy}
	return refusalWith(d)
}()

// userPolicy names the per-user limit in RateLimit headers.
const userPolicy = "user"

// limit asks the per-user limiter about one purchase request.
func (p *public) limit(buyer string) error {
	if p.cfg.Limiter == nil {
		return nil
	}
	r, err := p.cfg.Limiter.Allow(p.look.next(), buyer)
	if err != nil {
		p.metrics.limiter.WithLabelValues("refused").Inc()
		return err
	}
	if r.Local {
		p.metrics.limiter.WithLabelValues("alone").Inc()
	}
	if r.Allowed {
		return nil
	}
	wait := max(0, r.Reset.Sub(p.now()))
	policy, state := rateLimit(userPolicy, r.Limit, int64(math.Ceil(r.Period.Seconds())), r.Remaining, seconds(wait))
	return errLimited.with(header{fiber.HeaderRetryAfter, p.retryAfter(wait)}, header{"RateLimit-Policy", policy}, header{"RateLimit", state})
}

// rateLimit writes the two headers of draft-ietf-httpapi-ratelimit-headers-11. The draft still renames its parameters: nobody else
// may build them.
func rateLimit(name string, quota, windowSeconds, remaining int64, reset string) (policy, state string) {
	return fmt.Sprintf(`"%s";q=%d;w=%d`, name, quota, windowSeconds), fmt.Sprintf(`"%s";r=%d;t=%s`, name, remaining, reset)
}
