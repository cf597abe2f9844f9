package adminhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
	"sluice/internal/rehearsal"
)

var (
	errNoReport  = httpserver.NewProblem(problem.NotFound, "There is no such report. The newest reports are kept.")
	errBadReport = httpserver.NewProblem(problem.BadRequest, "The body is not a report of sluice rehearse as JSON.")
)

// reportPolicy is the Content-Security-Policy of a report's page. The page contains text that the client has sent, so
// the policy allows no scripts and gives the page an opaque origin.
const reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; " +
	"frame-ancestors 'none'; sandbox"

func (h *handlers) addReports() {
	h.post("/admin/v1/rehearsals/:sale/report", with((*request).saleID, h.saveReport))
	h.get("/admin/v1/reports", list("reports", h.cfg.Store.Reports, reportJSON))
	h.get("/admin/v1/reports/:sale", show((*request).saleID, h.report, reportJSON))
	h.handleRaw(fiber.MethodGet, "/admin/v1/reports/:sale/page", h.reportPage)
}

type reportBody struct {
	ID       string          `json:"id"`
	SaleID   string          `json:"sale_id"`
	Verdict  string          `json:"verdict"`
	StoredAt time.Time       `json:"stored_at"`
	StoredBy string          `json:"stored_by"`
	Report   json.RawMessage `json:"report,omitempty"` // not in lists
}

func reportJSON(r store.RehearsalReport) reportBody {
	return reportBody{r.ID, r.SaleID, r.Verdict, r.StoredAt, r.StoredBy, r.Report}
}

// saveReport stores the report in the body. The copy of the rehearsal may already be removed.
func (h *handlers) saveReport(ctx context.Context, r *request, id string) (any, error) {
	body := r.Context().Request.Body() // r.Body would decompress it
	var report rehearsal.Report
	var text bytes.Buffer
	if json.Unmarshal(body, &report) != nil || json.Compact(&text, body) != nil ||
		!httpserver.IsStorable(text.String()) {
		return nil, errBadReport
	}
	var bad sale.InvalidError
	if !sale.IsRehearsal(id) || report.Copy.ID != id {
		bad.Add("copy.id", "must be the rehearsal of the URL")
	}
	if report.Rehearsed == "" {
		bad.Add("rehearsed", "must be set")
	} else if err := sale.ValidateID(report.Rehearsed); err != nil {
		bad.Add("rehearsed", err.Error())
	}
	if !report.Verdict.Valid() {
		bad.Add("verdict", "must be go, no-go or unclear")
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	stored := store.RehearsalReport{
		ID: id, SaleID: report.Rehearsed, Verdict: string(report.Verdict), Report: text.Bytes(),
	}
	if err := h.cfg.Store.SaveReport(ctx, stored); err != nil {
		return nil, err
	}
	r.created("/admin/v1/reports/" + id)
	return map[string]string{"id": id, "verdict": stored.Verdict}, nil
}

func (h *handlers) report(ctx context.Context, id string) (store.RehearsalReport, error) {
	found, err := h.cfg.Store.Report(ctx, id)
	return found, orMissing(err, errNoReport)
}

// reportPage answers with a report as a page.
func (h *handlers) reportPage(c *fiber.Ctx, _ caller) error {
	id, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	found, err := h.report(ctx, id)
	if err != nil {
		return err
	}
	var report rehearsal.Report
	var page bytes.Buffer
	if err := errors.Join(json.Unmarshal(found.Report, &report), report.WriteHTML(&page)); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentSecurityPolicy, reportPolicy)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return c.Send(page.Bytes())
}
