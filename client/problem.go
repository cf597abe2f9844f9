package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the stable name of an error of the API. A Code is itself an error, so that errors.Is(err, client.SoldOut)
// matches a Problem with that code.
type Code string

func (c Code) Error() string { return string(c) }

// The codes of problems; docs/openapi.yaml describes each.
const (
	BadRequest           Code = "bad-request"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not-found"
	MethodNotAllowed     Code = "method-not-allowed"
	RequestTimeout       Code = "request-timeout"
	AlreadyBought        Code = "already-bought" // Problem.OrderID is the existing order
	SoldOut              Code = "sold-out"
	SaleNotOpen          Code = "sale-not-open" // Problem.OpensAt is set
	SaleClosed           Code = "sale-closed"
	SalePaused           Code = "sale-paused"
	Conflict             Code = "conflict"
	TooLarge             Code = "too-large" // the body, or the request line and headers
	IdempotencyKeyReused Code = "idempotency-key-reused"
	QuotaExceeded        Code = "quota-exceeded" // Problem.RetryAfter is set
	Unavailable          Code = "temporarily-unavailable"
	InternalError        Code = "internal-error"
	OrderCancelled       Code = "order-cancelled"  // of a payment callback, like the next two
	AlreadyPaid          Code = "already-paid"     // the payment is recorded for a refund
	PaymentMismatch      Code = "payment-mismatch" // its amount is not the price of the sale
)

// Problem is an error response of the API (RFC 9457). Fields that the server did not send are zero.
type Problem struct {
	Type             string       `json:"type"`
	Title            string       `json:"title"`
	Status           int          `json:"status"` // HTTP status
	Detail           string       `json:"detail"`
	Code             Code         `json:"code"`
	Errors           []FieldError `json:"errors"` // all problems of the request
	OrderID          string       `json:"order_id"`
	OpensAt          time.Time    `json:"opens_at"`
	ViolatedPolicies []string     `json:"violated-policies"`

	RetryAfter time.Duration `json:"-"` // delay before a retry; 0: unknown
	RequestID  string        `json:"-"` // X-Request-Id, as in the log of the edge
}

// FieldError is an error of one field of a request.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error returns the problem in one line.
func (p *Problem) Error() string {
	text := cmp.Or(p.Detail, p.Title, fmt.Sprintf("the server returned status %d", p.Status))
	var fields []string
	for _, f := range p.Errors {
		fields = append(fields, f.Field+" "+f.Detail)
	}
	if len(fields) > 0 {
		text += " (" + strings.Join(fields, "; ") + ")"
	}
	return text
}

// Is reports whether target is the code of the problem.
func (p *Problem) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == p.Code
}

// problemOf decodes an error response. For a body that is not a problem, such as an error page of a proxy, it returns a
// Problem with only a status.
func problemOf(resp *http.Response, body []byte) *Problem {
	p := &Problem{}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if !strings.HasSuffix(strings.TrimSpace(media), "json") || json.Unmarshal(body, p) != nil {
		p = &Problem{}
	}
	p.Status = resp.StatusCode
	p.RequestID = resp.Header.Get("X-Request-Id")
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return p
}

const maxRetryAfter = 24 * time.Hour

// retryAfter parses a Retry-After header: seconds, or a date as some proxies send. It returns 0 for other values.
func retryAfter(text string) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = time.Until(at)
	}
	return max(0, min(d, maxRetryAfter))
}
