package adminhttp

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

// maxProfile bounds the duration of a profile or trace, in seconds.
const maxProfile = 60

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
		if err := checkSeconds(c); err != nil {
			return err
		}
		return serveHTTP(c, serve)
	})
}

// checkSeconds bounds the parameter seconds, as the handlers of net/http read it. They also accept signs and fractions.
func checkSeconds(c *fiber.Ctx) error {
	var r http.Request
	if err := fasthttpadaptor.ConvertRequest(c.Context(), &r, true); err != nil {
		return httpserver.ErrNotFound
	}
	text := r.FormValue("seconds")
	if n, err := strconv.ParseUint(text, 10, 63); text != "" && (err != nil || n < 1 || n > maxProfile) {
		return sale.Invalid("seconds", fmt.Sprintf("must be a whole number between 1 and %d", maxProfile))
	}
	return nil
}

// serveHTTP answers with a handler of net/http.
func serveHTTP(c *fiber.Ctx, serve http.Handler) error {
	fasthttpadaptor.NewFastHTTPHandler(serve)(c.Context())
	return nil
}
