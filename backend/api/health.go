package api

import (
	"context"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/internal/problem"
)

const (
	// checkTimeout bounds all checks together: whoever asks for readiness does not wait long either.
	checkTimeout = time.Second
	// checkEvery keeps a flood of /readyz from becoming a flood of pings.
	checkEvery = 250 * time.Millisecond
)

var (
	errDraining = refusalOf(problem.Unavailable, "This process is shutting down.")
	healthy     = []byte(`{"status":"ok"}`)
	ready       = []byte(`{"status":"ready"}`)
)

// health adds /healthz, which tells that the process answers, and /readyz, which tells that it can serve.
func (a *App) health(checks []Check) {
	r := &readiness{checks: checks}
	a.handle(fiber.MethodGet, "/healthz", func(c *fiber.Ctx) error { return sendBytes(c, healthy) })
	a.handle(fiber.MethodGet, "/readyz", func(c *fiber.Ctx) error {
		if a.draining() {
			return errDraining
		}
		if down := r.down(a.now()); len(down) > 0 {
			return notReady(down)
		}
		return sendBytes(c, ready)
	})
}

func sendBytes(c *fiber.Ctx, body []byte) error {
	resp := &c.Context().Response
	resp.Header.SetContentType(fiber.MIMEApplicationJSON)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	resp.SetBody(body)
	return nil
}

func notReady(down []string) error {
	d := problem.New(problem.Unavailable, "Not ready; see errors for what is down.")
	for _, name := range down {
		d.Errors = append(d.Errors, problem.FieldError{Field: name, Detail: "down"})
	}
	return refusalWith(d)
}

// readiness runs the checks, at most once per checkEvery.
type readiness struct {
	checks []Check

	mu    sync.Mutex
	asked time.Time
	last  []string
}

// down names the checks that fail.
func (r *readiness) down(now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && now.Sub(r.asked) < checkEvery {
		return r.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	passed := make(chan int, len(r.checks))
	for i, check := range r.checks {
		go func() {
			if check.Probe(ctx) != nil {
				i = -1
			}
			passed <- i
		}()
	}
	up := make([]bool, len(r.checks))
	for range r.checks {
		select {
		case i := <-passed:
			if i >= 0 {
				up[i] = true
			}
		case <-ctx.Done(): // who has not answered is down
		}
	}
	r.asked, r.last = now, nil
	for i, ok := range up {
		if !ok {
			r.last = append(r.last, r.checks[i].Name)
		}
	}
	return r.last
}
