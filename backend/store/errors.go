package store

import (
	"errors"
	"fmt"
	"strings"

	"sluice/backend/sale"
)

// ErrRejected reports orders that can never be stored: they would oversell the sale, use an occupied slot, name an
// unknown or an archived sale, contain values that do not fit the tables, or make a trigger raise an exception.
// Retrying cannot help. Temporary failures wrap sale.ErrUnavailable instead.
var ErrRejected = errors.New("rejected by the order store")

// RefusedError explains to an admin why the current state does not allow a change. It wraps sale.ErrConflict.
type RefusedError struct{ Detail string }

func (e *RefusedError) Error() string { return e.Detail }

func (e *RefusedError) Unwrap() error { return sale.ErrConflict }

// Refused returns a *RefusedError.
func Refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// URLError describes, in one line, why no database can be opened with a URL until an admin changes something. It does
// not contain the URL, which may hold a password.
type URLError struct{ Detail string }

func (e *URLError) Error() string { return "database URL: " + e.Detail }

// rejected wraps ErrRejected with the reason that an admin reads on a dead letter.
func rejected(constraint, detail string) error {
	switch {
	case strings.Contains(constraint+detail, "sales_not_oversold"):
		detail = "the sale has fewer units left than the batch has orders"
	case constraint == "orders_slot", strings.Contains(detail, "orders.sale_id, orders.buyer, orders.slot"):
		detail = "another order occupies this slot of the buyer"
	}
	return fmt.Errorf("%w: %s", ErrRejected, detail)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", sale.ErrUnavailable, oneLine{err}) }

// oneLine prints an error in one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
