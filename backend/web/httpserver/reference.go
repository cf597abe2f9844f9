package httpserver

import (
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/apidocs"
	"sluice/backend/web/page"
	"sluice/docs"
	"sluice/internal/openapi"
)

const (
	openAPIPath   = "/openapi.yaml"
	referencePath = "/reference"
	// referenceAge is how long the reference may be cached: it changes with the program's version.
	referenceAge = "public, max-age=60"
)

// reference is the documentation of one server's routes.
type reference struct {
	yaml []byte
	page page.Page
}

// addReference registers the API reference, unless the server has health checks only. It is rendered on the first
// request, because most processes receive none.
func (s *Server) addReference() {
	if len(s.routes) == healthRoutes {
		return
	}
	render := sync.OnceValues(s.reference)
	s.Handle(fiber.MethodGet, openAPIPath, func(c *fiber.Ctx) error {
		r, err := render()
		if err != nil {
			return err
		}
		resp := &c.Context().Response
		resp.Header.SetContentType("application/yaml; charset=utf-8")
		resp.Header.Set(fiber.HeaderCacheControl, referenceAge)
		resp.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		resp.Header.Set(fiber.HeaderAccessControlAllowOrigin, "*") // public, and read by tools in browsers
		resp.SetBodyRaw(r.yaml)
		return nil
	})
	s.Handle(fiber.MethodGet, referencePath, func(c *fiber.Ctx) error {
		r, err := render()
		if err != nil {
			return err
		}
		err = SendPage(c, fiber.StatusOK, r.page)
		c.Context().Response.Header.Set(fiber.HeaderCacheControl, referenceAge)
		return err
	})
}

// reference renders the part of docs/openapi.yaml with the routes of this server, without those for edges.
func (s *Server) reference() (r reference, err error) {
	doc, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		return r, err
	}
	doc.Keep(func(method, path string) bool {
		return !strings.HasPrefix(path, "/.sluice/") &&
			slices.ContainsFunc(s.routes, func(r Route) bool { return r.Method == method && r.Documented() == path })
	})
	if r.yaml, err = doc.YAML(); err != nil {
		return r, err
	}
	r.page, err = apidocs.New(doc, openAPIPath)
	return r, err
}
