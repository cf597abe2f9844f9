package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/sale"
	"sluice/client"
	limits "sluice/internal/listen"
	"sluice/internal/plural"
	"sluice/internal/rehearsal"
	"sluice/internal/token"
)

type rehearseFlags struct {
	rehearsal.Config
	target, out            string
	keys, kid              string
	claims                 token.Expect // of the tokens of simulated buyers
	beside, noTTY, noFiles bool
}

func (o *adminClient) rehearseCommand() *cobra.Command {
	var f rehearseFlags
	c := &cobra.Command{
		Use:   "rehearse [SALE]",
		Short: "Simulate buyers of a copy of a sale and report whether this deployment is ready for the sale",
		Long: `Create a copy of a sale with separate units, send simulated buyers and bots to it through the edge,
wait until every order is a row, check that nothing was sold twice or lost, remove the copy, and
write a report. Only the simulated buyers can see the copy and buy from it. Its orders produce no
events, so no group and no webhook receives them. Without SALE the command uses the only sale
besides the demo sale of "sluice up", or the demo sale if there is no other.

A rehearsal is rejected while a real sale is open or paused, or if one opens before it ends. The
exit code is 0 for go, and 1 for no-go, unclear, or a failure.`,
		Example: `  sluice rehearse demo                                   # the demo sale of sluice up, with 2000 buyers
  sluice rehearse shoe --buyers 50000 --span 60s --stock 1000 --bots 0.3
  sluice rehearse shoe --target https://shop.example --server http://10.0.0.2:8081
  sluice rehearse clean                                  # removes the copy of a rehearsal that was killed`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.rehearse(cmd.Context(), f, append(args, "")[0])
		},
	}
	fl := o.p.flags(c)
	fl.StringVar(&f.target, "target", "", "URL of the edge (default: from the data directory)")
	fl.str(&f.keys, "token-keys", envKeys, "",
		"JWK Set file with the private key that signs the tokens of the simulated buyers")
	fl.expect(&f.claims)
	fl.StringVar(&f.kid, "kid", "", "key of --token-keys that signs")
	fl.number(&f.Workload.Buyers, "buyers", "", 2000, 1, rehearsal.MaxBuyers, "buyers in total")
	fl.share(&f.Workload.Bots, "bots", 0.1, 0,
		"share of bots: a third at one address, a third with a new address for each request, a third with forged tokens")
	fl.oneOf(c, (*string)(&f.Workload.Curve), "curve", "", string(rehearsal.Spike),
		"distribution of arrivals: spike, uniform or ramp",
		string(rehearsal.Spike), string(rehearsal.Uniform), string(rehearsal.Ramp))
	fl.duration(&f.Workload.Span, "span", "", 10*time.Second, 100*time.Millisecond, 30*time.Minute,
		"time within which buyers arrive")
	fl.duration(&f.Workload.Think, "think", "", 2*time.Second, 0, time.Minute,
		"mean time between viewing the sale and buying")
	fl.number(&f.Workload.Retries, "retries", "", 10, 0, 100, "how often a buyer retries after a Retry-After")
	fl.Uint64Var(&f.Workload.Seed, "seed", 0, "seed of the simulated buyers, for repeating a run (default: random)")
	fl.Int64Var(&f.Stock, "stock", 0, "units of the copy (default: as many as the sale has)")
	bounded(fl, &f.Stock, "stock", "", "", 0, sale.MaxStock)
	const least, most = time.Millisecond, 10 * time.Minute
	fl.duration(&f.Limits.Latency, "max-latency", "", time.Second, least, most,
		"go only if the 99th percentile of response times to buyers is at most this")
	fl.duration(&f.Limits.Drain, "max-drain", "", 30*time.Second, least, most,
		"go only if all orders are rows within this time after the last one")
	fl.share(&f.Limits.Lost, "max-lost", 0.001, 1e-9,
		"go only if at most this share of buyers gets no response, or an error, after all retries")
	fl.share(&f.Limits.Limited, "max-limited", 0.01, 1e-9,
		"go only if limits still reject at most this share of buyers after all retries")
	fl.BoolVar(&f.beside, "beside-real-sales", false,
		"run while a real sale is open; its buyers share the capacity with the rehearsal")
	fl.StringVar(&f.out, "out", ".", "directory for the report: rehearsal-....html and .json")
	fl.BoolVar(&f.noFiles, "no-report", false, "write no files")
	fl.number(&f.Connections, "connections", "", 10_000, 1, 60_000, "maximum open connections")
	fl.duration(&f.Timeout, "timeout", "", 10*time.Second, least, most, "time after which a buyer gives up a request")
	fl.duration(&f.Lead, "lead", "", 3*time.Second, least, most, "time between creation and opening of the copy")
	fl.BoolVar(&f.noTTY, "no-tty", false, "print progress in plain lines, also in a terminal")
	fl.check(func(bad *problems) { f.finish(o, bad) })
	return o.adminCommand(c, o.rehearseClean())
}

func (o *adminClient) rehearse(ctx context.Context, f rehearseFlags, saleID string) error {
	admin, err := o.connect()
	if err != nil {
		return err
	}
	f.Stage, f.Records = &rehearsalStage{o, f.beside}, admin
	if f.Sale, err = o.rehearsedSale(ctx, saleID); err != nil {
		return err
	}
	view := o.p.rehearsalView(f.noTTY || o.p.json)
	view.head = visible(fmt.Sprintf("Rehearsing %s at %s: %s, up to %.0f a second, seed %d\n",
		f.Sale, f.Target, plural.Count(f.Workload.Buyers, "buyer"), f.Workload.PeakRate(), f.Workload.Seed))
	f.Progress = view.show
	cleaning, done := untilAnother(ctx)
	defer done()
	report, err := rehearsal.Run(ctx, cleaning, f.Config)
	view.end()
	switch {
	case report == nil && cleaning.Err() != nil: // the copy may exist
		return err
	case report == nil:
		return orInterrupted(ctx, err)
	}
	if err := o.storeReport(cleaning, report); err != nil {
		fmt.Fprintln(o.p.errOut, "The report is not in the admin console: "+visible(oneLine(err)))
	}
	err = errors.Join(err, o.writeRehearsal(f, report))
	if err == nil && report.Verdict != rehearsal.Go {
		err = fmt.Errorf("%s: %s", report.Verdict, strings.Join(report.Why, "; "))
	}
	return err
}

func (f *rehearseFlags) finish(o *adminClient, bad *problems) {
	var err error
	f.Buyer = sale.RehearsalBuyer
	if most := limits.OpenFiles() - 100; most > 0 { // beyond it, connections would fail here
		f.Connections = min(f.Connections, most)
	}
	if f.Workload.Seed == 0 {
		f.Workload.Seed = rand.Uint64N(1_000_000) //nolint:gosec // short enough to be typed again
	}
	if err := f.Workload.CheckRate(); err != nil {
		bad.add("%v", err)
	}
	f.Config.Target, err = o.rehearsalTarget(f.target)
	bad.check("--target", err)
	signer, err := o.p.signer(o.data, f.keys, f.kid, f.claims)
	if err != nil {
		bad.add("tokens for the simulated buyers: %v", err)
	} else {
		f.Sign = signer.Sign
	}
	if info, err := os.Stat(f.out); !f.noFiles && (err != nil || !info.IsDir()) {
		bad.add("--out %q is not a directory", f.out)
	} else if !f.noFiles {
		bad.check("--out", checkDirectory(f.out))
	}
}

func (o *adminClient) rehearsalTarget(target string) (*url.URL, error) {
	if target == "" {
		at, err := dataDir(o.data).server()
		if err != nil || o.server != "" {
			return nil, errors.New("want the URL of the edge, such as https://shop.example")
		}
		target = at.Public
	}
	return parseOrigin(target)
}

// rehearsedSale returns the sale to rehearse: id, or the only candidate if id is empty.
func (o *adminClient) rehearsedSale(ctx context.Context, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	var answer struct{ Sales []client.AdminSale }
	if err := o.do(ctx, get(adminPath("sales")), &answer); err != nil {
		return "", err
	}
	var ids, demo []string
	for _, s := range answer.Sales {
		switch {
		case s.ID == demoSale:
			demo = []string{demoSale}
		case !sale.IsRehearsal(s.ID):
			ids = append(ids, s.ID)
		}
	}
	all := slices.Concat(demo, ids)
	switch {
	case len(all) == 0:
		return "", errors.New("there is no sale to rehearse: create one with sluice sale create")
	case len(ids) <= 1:
		return all[len(all)-1], nil
	}
	const most = 10
	more := ""
	if n := len(all) - most; n > 0 {
		all, more = all[:most], " or "+plural.Count(n, "other")+", see sluice sale list"
	}
	return "", usage("SALE is missing: want one of %s%s", strings.Join(all, ", "), more)
}

// storeReport stores the report where the admin console shows it. An interrupted rehearsal is stored too.
func (o *adminClient) storeReport(ctx context.Context, report *rehearsal.Report) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return o.do(ctx, post(adminPath("rehearsals", report.Copy.ID, "report"), report), &struct{}{})
}

func (o *adminClient) writeRehearsal(f rehearseFlags, report *rehearsal.Report) error {
	path := filepath.Join(f.out, report.Copy.ID)
	var failed error
	if !f.noFiles {
		failed = errors.Join(
			createFile(path+".html", 0o644, report.WriteHTML), createFile(path+".json", 0o644, report.WriteJSON))
	}
	return errors.Join(failed, o.p.show(report, func(w io.Writer) {
		_ = report.WriteText(w) // run reports an output that is incomplete
		if !f.noFiles && failed == nil {
			fmt.Fprintf(w, "\nThe report: %s.html\n", path)
		}
	}))
}

func (o *adminClient) rehearseClean() *cobra.Command {
	return &cobra.Command{
		Use:   "clean [REHEARSAL]",
		Short: "Remove the copies of all rehearsals, or of one",
		Long: `Close rehearsals and delete them with their orders, in SQL and in Redis. A running rehearsal ends.
Orders that are still queued must become rows first: the command then reports that, exits 1, and can
be repeated.`,
		Example: `  sluice rehearse clean
  sluice rehearse clean rehearsal-shoe-mzxw6ytboi`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all := len(args) == 0
			if all {
				var err error
				if args, err = o.rehearsals(cmd.Context()); err != nil {
					return err
				}
			}
			for _, id := range args {
				if !sale.IsRehearsal(id) {
					return usage("%q is not a rehearsal: its id begins with %s", id, sale.RehearsalPrefix)
				}
			}
			removed, failed := o.removeRehearsals(cmd.Context(), args, all)
			return errors.Join(failed, o.p.show(removed, func(w io.Writer) {
				for _, r := range removed {
					fmt.Fprintf(w, "%s and its %s are removed\n", r.ID, plural.Count(r.Orders, "order"))
				}
				if len(removed) == 0 && failed == nil {
					fmt.Fprintln(w, "there is no rehearsal")
				}
			}))
		},
	}
}

func (o *adminClient) rehearsals(ctx context.Context) (ids []string, err error) {
	var answer struct{ Rehearsals []client.AdminSale }
	err = o.do(ctx, get(adminPath("rehearsals")), &answer)
	for _, s := range answer.Rehearsals {
		ids = append(ids, s.ID)
	}
	return ids, err
}

// removeRehearsals removes rehearsals until ctx ends. It returns the removed ones and the errors of the others. A
// missing rehearsal is an error, unless listed: then the ids are from a list of the server, and another process may
// have removed it since.
func (o *adminClient) removeRehearsals(ctx context.Context, ids []string, listed bool) ([]removedJSON, error) {
	removed := []removedJSON{}
	var failed error
	for _, id := range ids {
		r, err := o.removeRehearsal(ctx, id)
		switch {
		case err == nil:
			removed = append(removed, r)
		case listed && problemStatus(err) == http.StatusNotFound:
		default:
			failed = errors.Join(failed, named(id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return removed, failed
}

// rehearsalStage creates and removes a rehearsal through the admin API.
type rehearsalStage struct {
	o      *adminClient
	beside bool
}

type removedJSON struct {
	ID     string `json:"id"`
	Orders int64  `json:"orders"`
}

func (o *adminClient) removeRehearsal(ctx context.Context, id string) (r removedJSON, err error) {
	err = o.do(ctx, post(adminPath("rehearsals", id, "remove"), struct{}{}), &r)
	return r, err
}

func (s *rehearsalStage) Make(
	ctx context.Context, saleID string, stock int64, opens, closes time.Time,
) (rehearsal.Sale, error) {
	var made client.AdminSale
	err := s.o.do(ctx, post(adminPath("rehearsals"), struct {
		Sale   string    `json:"sale"`
		Stock  int64     `json:"stock,omitempty"`
		Opens  time.Time `json:"opens_at"`
		Closes time.Time `json:"closes_at"`
		Beside bool      `json:"beside_real_sales"`
	}{saleID, stock, opens.UTC(), closes.UTC(), s.beside}), &made)
	switch problemStatus(err) {
	case http.StatusNotFound:
		err = errors.New(noSuch("sales", saleID))
	case http.StatusConflict:
		err = fmt.Errorf("%w Rehearse while no real sale is open, or add --beside-real-sales", err)
	}
	if err == nil && (!sale.IsRehearsal(made.ID) || sale.ValidateID(made.ID) != nil) { // the id becomes a file name
		err = fmt.Errorf("the server returned %q as the id of the rehearsal", made.ID)
	}
	return rehearsal.Sale{ID: made.ID, Title: made.Title, Stock: made.Stock, PerBuyer: int64(made.PerBuyer)}, err
}

func (s *rehearsalStage) Remove(ctx context.Context, id string) (orders int64, gone bool, err error) {
	r, err := s.o.removeRehearsal(ctx, id)
	switch problemStatus(err) {
	case http.StatusNotFound: // the request was repeated after a lost response
		return 0, true, nil
	case http.StatusConflict:
		return 0, false, nil
	}
	return r.Orders, err == nil, err
}
