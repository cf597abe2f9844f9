package notify_test

import (
	"strings"
	"testing"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
)

func TestTextNamesEventInBothLanguages(t *testing.T) {
	m := events.Event{Type: events.Created, OrderID: created(1).OrderID, SaleID: "shoe", Was: sale.StatusQueued}
	seen := map[string]bool{}
	for _, l := range []notify.Lang{notify.English, notify.Chinese} {
		for _, what := range []struct {
			kind events.Type
			was  sale.Status
		}{
			{events.Created, sale.StatusQueued},
			{events.Paid, sale.StatusCreated},
			{events.Cancelled, sale.StatusCreated},
			{events.Cancelled, sale.StatusQueued},
		} {
			m.Type, m.Was = what.kind, what.was
			text := notify.TextOf(m, l)
			if seen[text.Title] || !strings.Contains(text.Body, m.OrderID.String()) || !strings.Contains(text.Body, "shoe") ||
				strings.Contains(text.Body, "%!") {
				t.Errorf("%s %s: %+v", l, what.kind, text)
			}
			seen[text.Title] = true
		}
	}
	m.SaleID = "a\r\nBcc: x\x00\u202e\u2028b"
	if text := notify.TextOf(m, notify.English); strings.ContainsAny(text.Body, "\r\n\x00\u202e\u2028") {
		t.Errorf("%q", text.Body)
	}
	if got, want := notify.TextOf(m, "xx"), notify.TextOf(m, notify.English); got != want {
		t.Errorf("unknown language: %+v, want %+v", got, want)
	}
}
