package sale

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that packages wrap and callers match with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("not possible in this state")
	ErrUnavailable = errors.New("temporarily unavailable") // a store is down or overloaded; the request may be retried
)

// Unavailable wraps an error of a store in ErrUnavailable.
func Unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// FieldError describes an invalid field of a request.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// InvalidError lists the invalid fields of a request. The zero value is empty and ready for Add.
type InvalidError struct {
	Fields []FieldError
}

// Invalid returns an *InvalidError for one field.
func Invalid(field, detail string) error {
	return &InvalidError{Fields: []FieldError{{field, detail}}}
}

// Add appends an invalid field.
func (e *InvalidError) Add(field, detail string) {
	e.Fields = append(e.Fields, FieldError{field, detail})
}

// Err returns e, or nil if no field is invalid.
func (e *InvalidError) Err() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + ": " + f.Detail
	}
	return strings.Join(parts, "; ")
}
