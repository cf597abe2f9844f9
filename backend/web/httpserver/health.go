package httpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/internal/plural"
	"sluice/internal/problem"
)

// Check probes one dependency that the process needs to serve requests.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
	// Detail describes an error of Probe to clients. It is "down" if Detail is nil or returns "".
	Detail func(err error) string
}

// Degraded is the error of a Probe for a dependency of which some shards cannot be used. The process counts as ready.
type Degraded struct{ Shards []int } // that cannot be used

func (d *Degraded) Error() string { return "down: " + plural.Named("shard", d.Shards) }

// failure calls Probe. detail describes an error of Probe, or the end of ctx before Probe has returned. It is ""
// without an error, and for a *Degraded, which sets unavailable to its shards.
func (c Check) failure(ctx context.Context) (detail string, unavailable []int) {
	result := make(chan error, 1)
	go func() { result <- c.Probe(ctx) }()
	err := context.DeadlineExceeded
	select {
	case err = <-result:
	case <-ctx.Done():
	}
	if degraded, ok := errors.AsType[*Degraded](err); ok {
		return "", degraded.Shards
	}
	switch {
	case err == nil:
		return "", nil
	case c.Detail == nil:
		return "down", nil
	}
	return cmp.Or(c.Detail(err), "down"), nil
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
		failing, unavailable := r.check(s.Now())
		if len(failing) > 0 {
			d := problem.New(problem.Unavailable, "Not ready; errors lists the dependencies that cannot be used.")
			d.Errors = failing
			return ProblemOf(d)
		}
		body, err := json.Marshal(readyBody{"ready", unavailable})
		if err != nil {
			return err
		}
		return sendStatus(c, body)
	})
}

type readyBody struct {
	Status      string `json:"status"`
	Unavailable []int  `json:"unavailable_shards,omitempty"`
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

	mu          sync.Mutex
	checked     time.Time
	failing     []problem.FieldError
	unavailable []int
}

// check returns the checks that fail or exceed checkTimeout, with details, and the shards that cannot be used.
func (r *readiness) check(now time.Time) (failing []problem.FieldError, unavailable []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.checked.IsZero() && now.Sub(r.checked) < checkInterval {
		return r.failing, r.unavailable
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	details, shards := make([]string, len(r.checks)), make([][]int, len(r.checks)) // by check
	var running sync.WaitGroup
	for i, check := range r.checks {
		running.Go(func() { details[i], shards[i] = check.failure(ctx) })
	}
	running.Wait()
	r.checked, r.failing, r.unavailable = now, nil, slices.Concat(shards...)
	for i, detail := range details {
		if detail != "" {
			r.failing = append(r.failing, problem.FieldError{Field: r.checks[i].Name, Detail: detail})
		}
	}
	return r.failing, r.unavailable
}
