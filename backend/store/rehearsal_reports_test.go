package store_test

import (
	"errors"
	"fmt"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

func TestReportsOfRehearsals(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		eve := store.WithActor(e.ctx, "eve")
		for n := range store.KeptReports + 2 {
			r := store.RehearsalReport{
				ID:      fmt.Sprintf("rehearsal-%03d", n),
				SaleID:  "s",
				Verdict: "go",
				Report:  []byte(`{"n":1}`),
			}
			if err := e.SaveReport(eve, r); err != nil {
				t.Fatal(err)
			}
		}
		last := fmt.Sprintf("rehearsal-%03d", store.KeptReports+1)
		again := store.RehearsalReport{ID: last, SaleID: "s", Verdict: "no-go", Report: []byte(`{"é":2}`)}
		if err := e.SaveReport(eve, again); err != nil {
			t.Fatal(err)
		}
		found, err := e.Report(e.ctx, last)
		if err != nil || found.Verdict != "no-go" || found.StoredBy != "eve" || string(found.Report) != `{"é":2}` ||
			found.StoredAt.IsZero() {
			t.Errorf("%+v, %v", found, err)
		}
		all, err := e.Reports(e.ctx)
		if err != nil || len(all) != store.KeptReports || len(all[0].Report) > 0 {
			t.Errorf("%d reports, %v", len(all), err)
		}
		if _, err := e.Report(e.ctx, "rehearsal-none"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("an unknown report: %v", err)
		}
		if log, err := e.Log(e.ctx, store.LogQuery{Limit: 1}); err != nil || log[0].Action != "rehearsal.report" ||
			log[0].Target != last || log[0].Detail != "no-go" {
			t.Errorf("%+v, %v", log, err)
		}
	})
}
