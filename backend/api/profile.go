package api

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttpadaptor"
)

// maxProfile bounds how long one profile or trace is taken.
const maxProfile = time.Minute

// profiles adds what go tool pprof asks for, for operators only. The command line is left out: it may hold the password of a store.
func (o *operator) profiles() {
	timed := map[string]http.HandlerFunc{"profile": pprof.Profile, "trace": pprof.Trace}
	named := []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}
	kinds := map[string]fiber.Handler{}
	for name, h := range timed {
		kinds[name] = adapted(h)
	}
	for _, name := range named {
		kinds[name] = adapted(pprof.Handler(name))
	}
	o.handle(fiber.MethodGet, "/debug/pprof/:profile", func(_ context.Context, c *fiber.Ctx, _ string) error {
		name := c.Params("profile")
		serve, known := kinds[name]
		if !known {
			return errNotFound
		}
		if seconds := c.Context().QueryArgs().GetUintOrZero("seconds"); time.Duration(seconds)*time.Second > maxProfile {
			return mistake("seconds", "must be at most 60")
		}
		return serve(c)
	})
}

func adapted(h http.Handler) fiber.Handler {
	serve := fasthttpadaptor.NewFastHTTPHandler(h)
	return func(c *fiber.Ctx) error {
		serve(c.Context())
		return nil
	}
}
