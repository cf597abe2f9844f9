package httpserver

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/internal/problem"
)

// Check probes one dependency that the process needs to serve requests.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
	// Detail describes an error of Probe to clients. It is "down" if Detail is nil or returns "".
	Detail func(err error) string
}

// failure describes an error of Probe, or the end of ctx before Probe has returned; "" for no error.
func (c Check) failure(ctx context.Context) string {
	result := make(chan error, 1)
	go func() { result <- c.Probe(ctx) }()
	err := context.DeadlineExceeded
	select {
	case err = <-result:
	case <-ctx.Done():
	}
	switch {
	case err == nil:
		return ""
	case c.Detail == nil:
		return "down"
	}
	return cmp.Or(c.Detail(err), "down")
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

const healthRoutes = 2

// addHealth registers /healthz, which reports that the process answers, and /readyz, which reports that it can serve.
func (s *Server) addHealth() {
	r := &readiness{checks: s.cfg.Checks}
	s.Handle(fiber.MethodGet, "/healthz", func(c *fiber.Ctx) error { return sendStatus(c, healthy) })
	s.Handle(fiber.MethodGet, "/readyz", func(c *fiber.Ctx) error {
		if s.draining() {
			return errDraining
		}
		if failing := r.failing(s.Now()); len(failing) > 0 {
			d := problem.New(problem.Unavailable, "Not ready; errors lists the dependencies that cannot be used.")
			d.Errors = failing
			return ProblemOf(d)
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

// readiness runs the checks at most once per checkInterval.
type readiness struct {
	checks []Check

	mu      sync.Mutex
	checked time.Time
	last    []problem.FieldError
}

// failing returns the checks that fail or exceed checkTimeout, with details.
func (r *readiness) failing(now time.Time) []problem.FieldError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.checked.IsZero() && now.Sub(r.checked) < checkInterval {
		return r.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	details := make([]string, len(r.checks)) // by check
	var running sync.WaitGroup
	for i, check := range r.checks {
		running.Go(func() { details[i] = check.failure(ctx) })
	}
	running.Wait()
	r.checked, r.last = now, nil
	for i, detail := range details {
		if detail != "" {
			r.last = append(r.last, problem.FieldError{Field: r.checks[i].Name, Detail: detail})
		}
	}
	return r.last
}
