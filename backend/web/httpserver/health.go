package httpserver

import (
	"context"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/internal/problem"
)

// Check probes one dependency without which the process cannot serve.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
}

const (
	// checkTimeout bounds all checks together.
	checkTimeout = time.Second
	// checkInterval keeps a flood of requests for /readyz from becoming a flood of probes.
	checkInterval = 250 * time.Millisecond
)

var (
	errDraining = NewProblem(problem.Unavailable, "This process is shutting down.")
	healthy     = []byte(`{"status":"ok"}`)
	ready       = []byte(`{"status":"ready"}`)
)

// addHealth registers /healthz, which reports that the process answers, and /readyz, which reports that it can serve.
func (s *Server) addHealth() {
	r := &readiness{checks: s.cfg.Checks}
	s.Handle(fiber.MethodGet, "/healthz", func(c *fiber.Ctx) error { return sendStatus(c, healthy) })
	s.Handle(fiber.MethodGet, "/readyz", func(c *fiber.Ctx) error {
		if s.Draining() {
			return errDraining
		}
		if failing := r.failing(s.Now()); len(failing) > 0 {
			return notReady(failing)
		}
		return sendStatus(c, ready)
	})
}

func sendStatus(c *fiber.Ctx, body []byte) error {
	resp := &c.Context().Response
	resp.Header.SetContentType(fiber.MIMEApplicationJSON)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	resp.SetBody(body)
	return nil
}

func notReady(failing []string) error {
	d := problem.New(problem.Unavailable, "Not ready; errors lists the dependencies that are down.")
	for _, name := range failing {
		d.Errors = append(d.Errors, problem.FieldError{Field: name, Detail: "down"})
	}
	return ProblemOf(d)
}

// readiness runs the checks at most once per checkInterval.
type readiness struct {
	checks []Check

	mu      sync.Mutex
	checked time.Time
	last    []string
}

// failing returns the names of the checks that fail or exceed checkTimeout.
func (r *readiness) failing(now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.checked.IsZero() && now.Sub(r.checked) < checkInterval {
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
		case <-ctx.Done():
		}
	}
	r.checked, r.last = now, nil
	for i, ok := range up {
		if !ok {
			r.last = append(r.last, r.checks[i].Name)
		}
	}
	return r.last
}
