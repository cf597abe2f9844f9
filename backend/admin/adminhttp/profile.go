package adminhttp

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"sluice/backend/web/httpserver"
)

// maxProfile bounds the duration of a profile or trace.
const maxProfile = time.Minute

// addProfiles registers the routes of go tool pprof, without the command line, which may hold the password of a store.
func (h *handlers) addProfiles() {
	timed := map[string]http.HandlerFunc{"profile": pprof.Profile, "trace": pprof.Trace}
	named := []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"}
	kinds := map[string]fiber.Handler{}
	for name, h := range timed {
		kinds[name] = adapted(h)
	}
	for _, name := range named {
		kinds[name] = adapted(pprof.Handler(name))
	}
	h.handle(fiber.MethodGet, "/debug/pprof/:profile", func(_ context.Context, c *fiber.Ctx, _ string) error {
		name := c.Params("profile")
		serve, known := kinds[name]
		if !known {
			return httpserver.ErrNotFound
		}
		if seconds := c.Context().QueryArgs().GetUintOrZero("seconds"); time.Duration(seconds)*time.Second > maxProfile {
			return httpserver.Invalid("seconds", "must be at most 60")
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
