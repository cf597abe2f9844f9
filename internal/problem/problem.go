// Package problem encodes refusals as problem details (RFC 9457). Both edges and the backend use it, so that their
// responses are identical. It does not depend on an HTTP library: callers send Body with ContentType.
package problem

import "encoding/json"

// ContentType is the content type of every Body.
const ContentType = "application/problem+json"

// quotaExceeded is the registered problem type for rate limits.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Code is the stable identifier of a refusal.
type Code string

// The codes. Their status and title are in table.
const (
	BadRequest           Code = "bad-request"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not-found"
	MethodNotAllowed     Code = "method-not-allowed"
	RequestTimeout       Code = "request-timeout"
	AlreadyBought        Code = "already-bought"
	SoldOut              Code = "sold-out"
	SaleNotOpen          Code = "sale-not-open"
	SaleClosed           Code = "sale-closed"
	SalePaused           Code = "sale-paused"
	Conflict             Code = "conflict"
	BodyTooLarge         Code = "too-large" // 413
	HeaderTooLarge       Code = "header-too-large"
	IdempotencyKeyReused Code = "idempotency-key-reused"
	RateLimited          Code = "quota-exceeded"
	Unavailable          Code = "temporarily-unavailable"
	Internal             Code = "internal-error"
	OrderCancelled       Code = "order-cancelled"
	AlreadyPaid          Code = "already-paid"
	PaymentMismatch      Code = "payment-mismatch"
)

var table = map[Code]struct {
	status int
	title  string
}{
	BadRequest:           {400, "Bad request"},
	Unauthorized:         {401, "Unauthorized"},
	Forbidden:            {403, "Forbidden"},
	NotFound:             {404, "Not found"},
	MethodNotAllowed:     {405, "Method not allowed"},
	RequestTimeout:       {408, "Request timeout"},
	AlreadyBought:        {409, "Already bought"},
	SoldOut:              {409, "Sold out"},
	SaleNotOpen:          {409, "Sale not open yet"},
	SaleClosed:           {409, "Sale closed"},
	SalePaused:           {409, "Sale paused"},
	Conflict:             {409, "Conflict"},
	BodyTooLarge:         {413, "Too large"},
	HeaderTooLarge:       {431, "Too large"},
	IdempotencyKeyReused: {422, "Idempotency key reused"},
	RateLimited:          {429, "Too many requests"},
	Unavailable:          {503, "Temporarily unavailable"},
	Internal:             {500, "Internal error"},
	OrderCancelled:       {409, "Order cancelled"},
	AlreadyPaid:          {409, "Already paid"},
	PaymentMismatch:      {409, "Payment mismatch"},
}

// FieldError describes an invalid field of a request.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Details is the body of a refusal. New fills Type, Title and Status from Code.
type Details struct {
	Type             string       `json:"type"`
	Title            string       `json:"title"`
	Status           int          `json:"status"`
	Detail           string       `json:"detail,omitempty"`
	Code             Code         `json:"code"`
	Errors           []FieldError `json:"errors,omitempty"`
	OrderID          string       `json:"order_id,omitempty"`
	OpensAt          string       `json:"opens_at,omitempty"`
	ViolatedPolicies []string     `json:"violated-policies,omitempty"`
}

// New returns the details of a refusal. An unknown code is replaced by Internal.
func New(code Code, detail string) Details {
	i, ok := table[code]
	if !ok {
		code, i = Internal, table[Internal]
	}
	d := Details{Type: "about:blank", Title: i.title, Status: i.status, Detail: detail, Code: code}
	switch code {
	case RateLimited:
		d.Type = quotaExceeded
	case HeaderTooLarge:
		d.Code = BodyTooLarge
	}
	return d
}

// Body returns the JSON encoding.
func (d Details) Body() []byte {
	b, err := json.Marshal(d)
	if err != nil { // cannot fail: the fields are strings and numbers
		panic(err)
	}
	return b
}
