package httpserver

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/page"
)

// SendJSON answers with v. Characters such as < and & are not escaped, because the body is never HTML. Cache-Control
// is no-store unless the handler has set it.
func SendJSON(c *fiber.Ctx, status int, v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	resp := &c.Context().Response
	resp.SetStatusCode(status)
	resp.Header.SetContentType(fiber.MIMEApplicationJSON)
	if len(resp.Header.Peek(fiber.HeaderCacheControl)) == 0 {
		resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	}
	resp.SetBody(buf.Bytes())
	return nil
}

// SendPage answers with an HTML page that must not be cached. The body must not change afterwards.
func SendPage(c *fiber.Ctx, status int, p page.Page) error {
	resp := &c.Context().Response
	resp.SetStatusCode(status)
	resp.Header.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	for _, h := range p.Headers {
		resp.Header.Set(h.Name, h.Value)
	}
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	if p.Gzip == nil {
		resp.SetBodyRaw(p.Body)
		return nil
	}
	sendCompressible(c, p.Body, p.Gzip)
	return nil
}

// SendAsset answers with the file whose URL ends with the route parameter "name". Browsers may keep a file forever if
// the URL has the hash of its content.
func SendAsset(c *fiber.Ctx, find func(name string) (page.Asset, bool)) error {
	a, ok := find(c.Params("name"))
	if !ok {
		return ErrNotFound
	}
	h := &c.Context().Response.Header
	h.SetContentType(a.Type)
	h.Set(fiber.HeaderCacheControl, "no-store")
	if a.Exact {
		h.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
	}
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	sendCompressible(c, a.Body, a.Gzip)
	return nil
}

// sendCompressible sends the compressed body to clients that accept gzip.
func sendCompressible(c *fiber.Ctx, body, gzipped []byte) {
	resp := &c.Context().Response
	resp.Header.Add(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
	resp.SetBodyRaw(body)
	if acceptsGzip(c.Get(fiber.HeaderAcceptEncoding)) {
		resp.Header.Set(fiber.HeaderContentEncoding, "gzip")
		resp.SetBodyRaw(gzipped)
	}
}

// acceptsGzip reports whether an Accept-Encoding header names gzip with a weight above 0 (RFC 9110, section 12.5.3).
// The nginx edge decides the same (nginx/conf.d/70-pages.conf).
func acceptsGzip(header string) bool {
	for member := range strings.SplitSeq(header, ",") {
		coding, weight, _ := strings.Cut(member, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q, weighted := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
			return !weighted || strings.Trim(q, "0.") != ""
		}
	}
	return false
}

// Bodies converts the items of a list. Without items it returns an empty slice, which JSON encodes as [].
func Bodies[T, B any](items []T, body func(T) B) []B {
	list := make([]B, len(items))
	for i, item := range items {
		list[i] = body(item)
	}
	return list
}

// OptionalTime returns t in UTC, or nil if it is zero.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
