package adminhttp

import (
	"context"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
)

// request is an authenticated request. Its methods read one part each and return the zero value if the part is invalid;
// err is the first such error. Returned values do not share memory with the connection.
type request struct {
	*fiber.Ctx
	err error
}

// handler returns the body of the response, which is ignored after an error. The status is 200 unless the handler
// sets another. ctx carries the actor for the action log; it does not end when the client disconnects.
type handler func(ctx context.Context, r *request) (body any, err error)

func (h *handlers) get(path string, answer handler) { h.handle(fiber.MethodGet, path, answer) }

func (h *handlers) post(path string, answer handler) { h.handle(fiber.MethodPost, path, answer) }

func (h *handlers) handle(method, path string, answer handler) {
	h.handleRaw(method, path, func(c *fiber.Ctx, from caller) error {
		ctx, cancel := context.WithTimeout(store.WithActor(context.Background(), from.actor), requestTimeout)
		defer cancel()
		body, err := answer(ctx, &request{Ctx: c})
		if err != nil {
			return err
		}
		return httpserver.SendJSON(c, c.Context().Response.StatusCode(), body)
	})
}

// handleRaw registers a route that needs the admin token, or a session that began with it, and sends its own response.
func (h *handlers) handleRaw(method, path string, answer func(c *fiber.Ctx, from caller) error) {
	h.handlePublic(method, path, func(c *fiber.Ctx) error {
		from, err := h.authenticate(c)
		if err != nil {
			return err
		}
		return answer(c, from)
	})
}

// handlePublic registers a route without authentication.
func (h *handlers) handlePublic(method, path string, answer fiber.Handler) {
	h.Handle(method, path, func(c *fiber.Ctx) error {
		if h.tokenInURL(c.Context()) {
			return errTokenInURL
		}
		return answer(c)
	})
}

// idHandler is a handler of a request with an id in its path.
type idHandler[ID any] func(ctx context.Context, r *request, id ID) (body any, err error)

// with returns a handler that begins with the id in the path. answer is not called if the id is invalid.
func with[ID any](read func(*request) ID, answer idHandler[ID]) handler {
	return func(ctx context.Context, r *request) (any, error) {
		id := read(r)
		if r.err != nil {
			return nil, r.err
		}
		return answer(ctx, r, id)
	}
}

// withReason is with for a request with one field in its body, the reason for the action log. ctx carries it.
func withReason[ID any](read func(*request) ID, answer idHandler[ID]) handler {
	return with(read, func(ctx context.Context, r *request, id ID) (any, error) {
		body := r.object()
		ctx = takeReason(ctx, body)
		if err := r.end(body); err != nil {
			return nil, err
		}
		return answer(ctx, r, id)
	})
}

// takeReason takes the field "reason" and returns a context that carries it.
func takeReason(ctx context.Context, body *httpserver.Object) context.Context {
	return store.WithReason(ctx, body.Line("reason"))
}

// list returns the handler of a list that takes no parameters. The list has a name in the response.
func list[T, B any](name string, read func(context.Context) ([]T, error), body func(T) B) handler {
	return func(ctx context.Context, _ *request) (any, error) {
		items, err := read(ctx)
		return map[string]any{name: httpserver.Bodies(items, body)}, err
	}
}

// show returns the handler of one item, by the id in the path.
func show[ID, T, B any](id func(*request) ID, read func(context.Context, ID) (T, error), body func(T) B) handler {
	return with(id, item(read, body))
}

// change returns the handler of a change of one item, by the id in the path and with a reason. The response has the
// changed item.
func change[ID, T, B any](id func(*request) ID, do func(context.Context, ID) (T, error), body func(T) B) handler {
	return withReason(id, item(do, body))
}

func item[ID, T, B any](call func(context.Context, ID) (T, error), body func(T) B) idHandler[ID] {
	return func(ctx context.Context, _ *request, id ID) (any, error) {
		item, err := call(ctx, id)
		return body(item), err
	}
}

func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// saleID returns the sale of the path.
func (r *request) saleID() string {
	id, err := httpserver.SaleParam(r.Ctx)
	r.fail(err)
	return id
}

// orderID returns the order of the path.
func (r *request) orderID() sale.OrderID {
	id, err := httpserver.OrderParam(r.Ctx)
	r.fail(err)
	return id
}

// maxParam bounds a part of a path and a cursor, in bytes. The id of an event has at most 255, and that of a webhook
// delivery contains one.
const maxParam = 290

// param returns a part of the path. For a text that cannot be an id, for example one that SQL cannot store, the request
// fails with the error missing.
func (r *request) param(name string, missing error) string {
	text, err := url.PathUnescape(r.Params(name))
	if err != nil || len(text) > maxParam || !httpserver.IsStorable(text) {
		r.fail(missing)
	}
	return strings.Clone(text)
}

// object returns the body. Each of its fields is taken once; end follows the last one.
func (r *request) object() *httpserver.Object {
	body, err := httpserver.ReadObject(r.Ctx)
	if err != nil {
		r.fail(err)
		body, _ = httpserver.ParseObject([]byte("{}"))
	}
	return body
}

// end rejects the fields of a body that were not taken, and returns the error of the request.
func (r *request) end(body *httpserver.Object) error {
	body.RejectUnknown()
	r.fail(body.Err())
	return r.err
}

// created sets the status 201 and the path of what was created.
func (r *request) created(path string) {
	r.Status(fiber.StatusCreated).Set(fiber.HeaderLocation, path)
}

// page returns one page of a list under its name. If it has limit items, more may follow: the page then also has the
// cursor that next returns for its last item.
func page[B any](name string, items []B, limit int, next func(last B) any) map[string]any {
	if items == nil {
		items = []B{}
	}
	found := map[string]any{name: items}
	if len(items) == limit {
		found["next"] = next(items[limit-1])
	}
	return found
}
