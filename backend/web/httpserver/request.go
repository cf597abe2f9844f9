package httpserver

import (
	"errors"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/sale"
)

// SaleParam returns the sale's id from the path. The copy outlives the request.
func SaleParam(c *fiber.Ctx) (string, error) {
	raw := c.Params("sale")
	if err := sale.ValidateID(raw); err != nil {
		return "", sale.Invalid("sale", err.Error())
	}
	return strings.Clone(raw), nil
}

// OrderParam returns the order's id from the path.
func OrderParam(c *fiber.Ctx) (sale.OrderID, error) {
	id, err := sale.ParseOrderID(c.Params("order"))
	if err != nil {
		return 0, sale.Invalid("order", err.Error())
	}
	return id, nil
}

// NumberParam returns a number of at least 1 from the path, which has one form only: without a sign and leading zeros.
func NumberParam(c *fiber.Ctx, name string) (int64, error) {
	text := c.Params(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text {
		return 0, sale.Invalid(name, "must be a whole number of at least 1")
	}
	return n, nil
}

// Bearer returns the token of an Authorization header with the scheme Bearer.
func Bearer(authorization string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	token = strings.TrimLeft(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

const maxIdempotencyKey = 255

// IdempotencyKey returns the Idempotency-Key header, or "" if the client sent none.
func IdempotencyKey(h *fasthttp.RequestHeader) (string, error) {
	given := h.PeekAll("Idempotency-Key")
	switch len(given) {
	case 0:
		return "", nil
	case 1:
		key, err := parseIdempotencyKey(utils.UnsafeString(given[0]))
		if err != nil {
			return "", sale.Invalid("Idempotency-Key", err.Error())
		}
		return key, nil
	}
	return "", sale.Invalid("Idempotency-Key", "must be sent once")
}

var errIdempotencyKey = errors.New(`must be 1 to 255 printable ASCII characters, preferably in quotes: "8e03978e-40d5"`)

// parseIdempotencyKey reads the value of an Idempotency-Key header: a structured-field string ("abc", with \" and \\
// inside), or, as many clients send it, the bare characters without quotes. It rejects parameters, lists and empty
// keys. The key does not share memory with v.
func parseIdempotencyKey(v string) (string, error) {
	key := strings.Trim(v, " \t")
	ok := !strings.ContainsFunc(key, isSpecial)
	if quoted, found := strings.CutPrefix(key, `"`); found {
		key, ok = unquoteKey(quoted)
	}
	if !ok || key == "" || len(key) > maxIdempotencyKey {
		return "", errIdempotencyKey
	}
	return strings.Clone(key), nil
}

// isSpecial reports whether a character is not part of a bare key: it is not printable, or would make the value a list,
// a parameter or a broken string.
func isSpecial(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"\\,;", r) }

// unquoteKey reads a structured-field string after its first quote.
func unquoteKey(v string) (key string, ok bool) {
	v, ok = strings.CutSuffix(v, `"`)
	var b strings.Builder
	for i := 0; ok && i < len(v); i++ {
		escaped := v[i] == '\\' && i+1 < len(v)
		if escaped {
			i++
		}
		special := v[i] == '"' || v[i] == '\\'
		ok = escaped == special && v[i] >= ' ' && v[i] <= '~'
		b.WriteByte(v[i])
	}
	return b.String(), ok
}
