package store

import (
	"context"
	"time"
)

// KeptReports is how many reports of rehearsals are kept.
const KeptReports = 100

// RehearsalReport is the result of one rehearsal.
type RehearsalReport struct {
	ID       string    // of the copy of the sale
	SaleID   string    // of the real sale
	Verdict  string    // go, no-go or unclear
	StoredAt time.Time // by the database's clock
	StoredBy string    // actor
	Report   []byte    // JSON; empty in lists
}

// SaveReport stores the report of a rehearsal, replaces an earlier one with its id, and removes all but the KeptReports
// newest.
func (s *Store) SaveReport(ctx context.Context, report RehearsalReport) error {
	return s.Update(ctx, "store: save the report of "+report.ID, func(ctx context.Context, c Conn) error {
		if _, err := c.Exec(ctx, "INSERT INTO rehearsal_reports ("+reportColumns+"report) VALUES ($1, $2, $3, "+
			c.Dialect().Now+`, $4, $5) ON CONFLICT (id) DO UPDATE SET sale_id = excluded.sale_id, verdict = excluded.verdict,
				stored_at = excluded.stored_at, stored_by = excluded.stored_by, report = excluded.report`,
			report.ID, report.SaleID, report.Verdict, Text(Actor(ctx)), string(report.Report)); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, `DELETE FROM rehearsal_reports WHERE id NOT IN (
			SELECT id FROM rehearsal_reports ORDER BY stored_at DESC, id LIMIT $1)`, KeptReports); err != nil {
			return err
		}
		return appendEntry(ctx, c, "rehearsal.report", report.ID, report.SaleID, report.Verdict)
	})
}

const reportColumns = "id, sale_id, verdict, stored_at, stored_by, " // and the report

func scanReport(row Scanner) (r RehearsalReport, err error) {
	err = row.Scan(&r.ID, &r.SaleID, &r.Verdict, Time(&r.StoredAt), &r.StoredBy, &r.Report)
	return r, err
}

// Reports returns the reports without their documents, the newest first.
func (s *Store) Reports(ctx context.Context) ([]RehearsalReport, error) {
	return ViewRows(ctx, s.DB, "store: reports", scanReport,
		"SELECT "+reportColumns+"'' FROM rehearsal_reports ORDER BY stored_at DESC, id")
}

// Report returns one report, or sale.ErrNotFound.
func (s *Store) Report(ctx context.Context, id string) (RehearsalReport, error) {
	return ViewRow(ctx, s.DB, "store: report "+id, scanReport,
		"SELECT "+reportColumns+"report FROM rehearsal_reports WHERE id = $1", id)
}
