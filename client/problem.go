package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the short, stable name of a refusal. It is an error, so that errors.Is(err, client.SoldOut) tells one refusal from another.
type Code string

func (c Code) Error() string { return string(c) }

// The codes.
const (
	BadRequest           Code = "bad-request"
	Unauthorized         Code = "unauthorized"
	NotFound             Code = "not-found"
	AlreadyBought        Code = "already-bought" // Problem.OrderID is what was bought
	SoldOut              Code = "sold-out"
	SaleNotOpen          Code = "sale-not-open" // Problem.OpensAt
	SaleClosed           Code = "sale-closed"
	SalePaused           Code = "sale-paused"
	Conflict             Code = "conflict"
	IdempotencyKeyReused Code = "idempotency-key-reused"
	QuotaExceeded        Code = "quota-exceeded" // Problem.RetryAfter
	Unavailable          Code = "temporarily-unavailable"
)

// Problem is a refusal, RFC 9457. Fields that the server did not send are zero.
type Problem struct {
	Type             string       `json:"type"`
	Title            string       `json:"title"`
	Status           int          `json:"status"` // of HTTP
	Detail           string       `json:"detail"`
	Code             Code         `json:"code"`
	Errors           []FieldError `json:"errors"` // everything that was wrong with the request
	OrderID          string       `json:"order_id"`
	OpensAt          time.Time    `json:"opens_at"`
	ViolatedPolicies []string     `json:"violated-policies"`

	RetryAfter time.Duration `json:"-"` // asking earlier gets the same answer; 0: not said
	RequestID  string        `json:"-"` // what the edge's log calls it
}

// FieldError is what is wrong with one part of a request.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is one line for people.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = fmt.Sprintf("the server answered %d", p.Status)
	}
	var fields []string
	for _, f := range p.Errors {
		fields = append(fields, f.Field+" "+f.Detail)
	}
	if len(fields) > 0 {
		text += " (" + strings.Join(fields, "; ") + ")"
	}
	return text
}

// Is matches the problem's Code.
func (p *Problem) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == p.Code
}

// problemOf reads a refusal. What is no problem, such as the page of a proxy between, is one with nothing but its status.
func problemOf(resp *http.Response, body []byte) *Problem {
	p := &Problem{}
	if media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); !strings.HasSuffix(strings.TrimSpace(media), "json") || json.Unmarshal(body, p) != nil {
		p = &Problem{}
	}
	p.Status = resp.StatusCode
	p.RequestID = resp.Header.Get("X-Request-Id")
	p.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	return p
}

// longestRetryAfter bounds what is believed of a Retry-After.
const longestRetryAfter = 24 * time.Hour

// retryAfter reads seconds, or a date as proxies between may send.
func retryAfter(text string) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = time.Until(at)
	}
	return max(0, min(d, longestRetryAfter))
}
