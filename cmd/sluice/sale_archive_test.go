package main

import (
	"errors"
	"fmt"
	"testing"

	"sluice/backend/sale"
)

func TestReasonsWhyASaleIsNotArchived(t *testing.T) {
	open := fmt.Errorf("sale shoe cannot be archived: it is open: %w", sale.ErrConflict)
	for want, err := range map[string]error{
		`there is no sale "shoe" (see sluice sale list)`:              fmt.Errorf("archive: %w", sale.ErrNotFound),
		"sale shoe cannot be archived: it is open":                    open,
		"archive sale shoe: sale shoe cannot be archived: it is open": fmt.Errorf("archive sale shoe: %w", open),
		"no space left on device":                                     errors.New("no space left on device"),
	} {
		if got := notArchived("shoe", err); got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
