package api

import (
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/apidocs"
	"sluice/docs"
	"sluice/internal/openapi"
)

// The documentation, on both listeners: each has that of its own routes.
const (
	openAPIPath   = "/openapi.yaml"
	referencePath = "/reference"
)

// referenceAge is how long the documentation may be kept: it changes with the program.
const referenceAge = "public, max-age=60"

// manual is the documentation of one application.
type manual struct {
	yaml []byte
	page apidocs.Page
}

// addReference adds the documentation's routes, after all others. It is made when somebody asks first: most processes are never asked.
func (a *App) addReference() {
	made := sync.OnceValues(a.manual)
	a.handle(fiber.MethodGet, openAPIPath, func(c *fiber.Ctx) error {
		m, err := made()
		if err != nil {
			return err
		}
		resp := &c.Context().Response
		resp.Header.SetContentType("application/yaml; charset=utf-8")
		resp.Header.Set(fiber.HeaderCacheControl, referenceAge)
		resp.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		resp.Header.Set(fiber.HeaderAccessControlAllowOrigin, "*") // tools in browsers read it from anywhere; it is no secret
		resp.SetBodyRaw(m.yaml)
		return nil
	})
	a.handle(fiber.MethodGet, referencePath, func(c *fiber.Ctx) error {
		m, err := made()
		if err != nil {
			return err
		}
		resp := &c.Context().Response
		resp.Header.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
		resp.Header.Set(fiber.HeaderCacheControl, referenceAge)
		resp.Header.Set(fiber.HeaderContentSecurityPolicy, m.page.Policy)
		resp.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		resp.Header.Set(fiber.HeaderXFrameOptions, "DENY")
		resp.Header.Set(fiber.HeaderReferrerPolicy, "no-referrer")
		resp.Header.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
		resp.SetBodyRaw(m.page.HTML)
		if strings.Contains(c.Get(fiber.HeaderAcceptEncoding), "gzip") {
			resp.Header.Set(fiber.HeaderContentEncoding, "gzip")
			resp.SetBodyRaw(m.page.Gzip)
		}
		return nil
	})
}

// manual is docs/openapi.yaml without what this application does not answer, and without what is there for edges alone.
func (a *App) manual() (m manual, err error) {
	whole, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		return m, err
	}
	part, err := whole.Part(func(method, path string) bool {
		return !strings.HasPrefix(path, "/.sluice/") && slices.ContainsFunc(a.routes, func(r endpoint) bool { return r.method == method && documentedPath(r.path) == path })
	})
	if err != nil {
		return m, err
	}
	if m.yaml, err = part.YAML(); err != nil {
		return m, err
	}
	m.page, err = apidocs.New(part, openAPIPath)
	return m, err
}
