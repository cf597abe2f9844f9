package adminhttp

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

// maxProfile bounds the duration of a profile or trace.
const maxProfile = time.Minute

// addProfiles registers the routes of go tool pprof, without the command line, which may hold the password of a store.
func (h *handlers) addProfiles() {
	kinds := map[string]http.Handler{
		"profile": http.HandlerFunc(pprof.Profile), "trace": http.HandlerFunc(pprof.Trace),
	}
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		kinds[name] = pprof.Handler(name)
	}
	h.handleRaw(fiber.MethodGet, "/debug/pprof/:profile", func(c *fiber.Ctx, _ caller) error {
		serve, known := kinds[c.Params("profile")]
		if !known {
			return httpserver.ErrNotFound
		}
		if seconds := c.Context().QueryArgs().GetUintOrZero("seconds"); time.Duration(seconds)*time.Second > maxProfile {
			return sale.Invalid("seconds", "must be at most 60")
		}
		return serveHTTP(c, serve)
	})
}

// serveHTTP answers with a handler of net/http.
func serveHTTP(c *fiber.Ctx, serve http.Handler) error {
	fasthttpadaptor.NewFastHTTPHandler(serve)(c.Context())
	return nil
}
