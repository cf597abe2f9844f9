package api

import (
	"bufio"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// pageHeaders are the headers of an event stream that a browser reads.
func pageHeaders(c *fiber.Ctx) {
	h := &c.Context().Response.Header
	h.SetContentType("text/event-stream")
	h.Set(fiber.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
}

// writeEvents has run write the body, after the handler has returned. A panic in it ends this stream alone.
func (a *App) writeEvents(ctx *fasthttp.RequestCtx, run func(w *bufio.Writer)) {
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer func() {
			if v := recover(); v != nil { // outside of every handler: it would end the process
				a.log.Error("panic in an event stream", "panic", v)
			}
		}()
		run(w)
	})
}
