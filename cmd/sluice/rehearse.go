package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/sale"
	"sluice/client"
	"sluice/internal/rehearsal"
)

// rehearseFlags are the flags of sluice rehearse.
type rehearseFlags struct {
	target, curve, out     string
	keys, kid              string
	crowd                  rehearsal.Workload
	limits                 rehearsal.Limits
	stock                  int64
	connections            int
	timeout, lead          time.Duration
	beside, noTTY, noFiles bool
}

func (p *program) rehearseCommand() *cobra.Command {
	var f rehearseFlags
	var o *adminClient
	c := &cobra.Command{
		Use:   "rehearse [SALE]",
		Short: "Simulate a crowd on a copy of a sale and report whether this deployment is ready for it",
		Long: `Copy a sale with units of its own, send a crowd of buyers and bots to it through the edge, wait
until every order is a row, check that nothing was sold twice or lost, remove the copy, and write a
report. The copy is on no public list, only the crowd can see and buy it, and no webhook, push or
other group receives its orders. Without SALE the command uses the only sale, or the demo sale of
"sluice up".

A rehearsal is rejected while a real sale is open, or opens before the rehearsal would end. Exit 0
is go; 1 is no-go, unclear, or a failure.`,
		Example: `  sluice rehearse                                        the demo sale of sluice up, with 2000 buyers
  sluice rehearse shoe --buyers 50000 --span 60s --stock 1000 --bots 0.3
  sluice rehearse shoe --target https://shop.example --server http://10.0.0.2:8081
  sluice rehearse clean                                  removes what a rehearsal that was killed has left`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			saleID := ""
			if len(args) > 0 {
				saleID = args[0]
			}
			return p.rehearse(cmd.Context(), o, f, saleID)
		},
	}
	o = p.adminFlags(c)
	c.AddCommand(o.rehearseClean())
	fl := c.Flags()
	p.str(fl, &f.target, "target", "", "", "URL of the edge (default: from the data directory)")
	p.str(fl, &f.keys, "token-keys", envKeys, "", "JWK Set file with the private key to sign the crowd's tokens with")
	fl.StringVar(&f.kid, "kid", "", "which key of that file signs")
	fl.IntVar(&f.crowd.Buyers, "buyers", 2000, "how many come in all")
	fl.Float64Var(
		&f.crowd.Bots,
		"bots",
		0.1,
		"share of bots: many at one address, one at many addresses, forged tokens; all retry immediately",
	)
	fl.StringVar(&f.curve, "curve", string(rehearsal.Spike), "how people arrive: spike, uniform or ramp")
	fl.DurationVar(&f.crowd.Span, "span", 10*time.Second, "time in which people arrive")
	fl.DurationVar(&f.crowd.Think, "think", 2*time.Second, "mean time between seeing the sale and buying")
	fl.IntVar(&f.crowd.Retries, "retries", 10, "how often a buyer retries after a Retry-After")
	fl.Uint64Var(&f.crowd.Seed, "seed", 0, "draws the same crowd again (default: a new one)")
	fl.Int64Var(&f.stock, "stock", 0, "units of the copy (default: as many as the sale has)")
	fl.DurationVar(
		&f.limits.Latency,
		"max-latency",
		time.Second,
		"go only if 99 of 100 answers to people come within this",
	)
	fl.DurationVar(
		&f.limits.Drain,
		"max-drain",
		30*time.Second,
		"go only if every order is a row within this after the last one",
	)
	fl.Float64Var(&f.limits.Lost, "max-lost", 0.001, "go only if no larger share of people gets no answer in the end")
	fl.Float64Var(
		&f.limits.Limited,
		"max-limited",
		0.01,
		"go only if limits keep no larger share of people out to the end",
	)
	fl.BoolVar(
		&f.beside,
		"beside-real-sales",
		false,
		"also while a real sale is open: its buyers then share the capacity with the rehearsal",
	)
	fl.StringVar(&f.out, "out", ".", "directory for the report: rehearsal-....html and .json")
	fl.BoolVar(&f.noFiles, "no-report", false, "write no files")
	fl.IntVar(&f.connections, "connections", 10_000, "maximum open connections")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "after which a buyer takes a request for lost")
	fl.DurationVar(&f.lead, "lead", 3*time.Second, "time from the making of the copy to its opening")
	fl.BoolVar(&f.noTTY, "no-tty", false, "print progress in plain lines, also in a terminal")
	return c
}

func (p *program) rehearse(ctx context.Context, o *adminClient, f rehearseFlags, saleID string) error {
	if err := o.resolve(); err != nil {
		return err
	}
	cfg, err := p.rehearsalConfig(o, f)
	if err != nil {
		return err
	}
	if cfg.Sale, err = o.rehearsedSale(ctx, saleID); err != nil {
		return err
	}
	view := p.rehearsalView(f.noTTY || o.json)
	view.head = fmt.Sprintf(
		"Rehearsing %s at %s: %d buyers, up to %.0f a second, seed %d\n",
		cfg.Sale,
		cfg.Target,
		cfg.Workload.Buyers,
		cfg.Workload.PeakRate(),
		cfg.Workload.Seed,
	)
	cfg.Progress = view.show
	report, err := rehearsal.Run(ctx, cfg)
	view.end()
	if report == nil {
		return err
	}
	err = errors.Join(err, p.writeRehearsal(o, f, report))
	if err == nil && report.Verdict != rehearsal.Go {
		err = fmt.Errorf("%s: %s", report.Verdict, strings.Join(report.Why, "; "))
	}
	return err
}

func (p *program) rehearsalConfig(o *adminClient, f rehearseFlags) (rehearsal.Config, error) {
	cfg := rehearsal.Config{
		Stock:       f.stock,
		Workload:    f.crowd,
		Limits:      f.limits,
		Connections: f.connections,
		Timeout:     f.timeout,
		Lead:        f.lead,
		Buyer:       sale.RehearsalBuyer,
		Stage:       &rehearsalStage{o, f.beside},
		Records:     rehearsalRecords{o},
	}
	if most := openFiles() - 100; most > 0 { // too few files would look like a weakness of the deployment
		cfg.Connections = min(cfg.Connections, most)
	}
	var bad problems
	var err error
	if cfg.Workload.Curve, err = rehearsal.ParseCurve(f.curve); err != nil {
		bad.add("--curve %v", err)
	}
	if cfg.Workload.Seed == 0 {
		cfg.Workload.Seed = rand.Uint64N(1_000_000) //nolint:gosec // short enough to be typed again
	}
	if err := cfg.Workload.Check(); err != nil {
		bad.add("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if cfg.Target, err = o.rehearsalTarget(f.target); err != nil {
		bad.add("%v", err)
	}
	if f.stock < 0 || f.stock > sale.MaxStock {
		bad.add("--stock must be between 1 and %d", sale.MaxStock)
	}
	if f.connections < 1 || f.connections > 60_000 {
		bad.add("--connections must be between 1 and 60000")
	}
	for name, d := range map[string]time.Duration{
		"max-latency": f.limits.Latency, "max-drain": f.limits.Drain, "timeout": f.timeout, "lead": f.lead,
	} {
		if d < time.Millisecond || d > 10*time.Minute {
			bad.add("--%s must be between 1ms and 10m", name)
		}
	}
	for name, share := range map[string]float64{"max-lost": f.limits.Lost, "max-limited": f.limits.Limited} {
		if !(share > 0 && share <= 1) {
			bad.add("--%s must be above 0 and at most 1", name)
		}
	}
	signer, err := p.signer(o.data, f.keys, f.kid)
	if err != nil {
		bad.add("the crowd needs tokens: %v", err)
	} else {
		cfg.Sign = signer.Sign
	}
	if info, err := os.Stat(f.out); !f.noFiles && (err != nil || !info.IsDir()) {
		bad.add("--out %q is not a directory", f.out)
	}
	return cfg, bad.err()
}

// rehearsalTarget is where buyers come in.
func (o *adminClient) rehearsalTarget(target string) (*url.URL, error) {
	if target == "" {
		at, err := dataDir(o.data).server()
		if err != nil || o.server != "" {
			return nil, errors.New("--target is missing: the URL of the edge, where buyers come in")
		}
		target = at.Public
	}
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Path != "" && u.Path != "/" ||
		u.RawQuery != "" ||
		u.User != nil {
		return nil, fmt.Errorf("--target %q: want http://host:port", target)
	}
	return u, nil
}

// rehearsedSale is the sale that is meant.
func (o *adminClient) rehearsedSale(ctx context.Context, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	var answer struct {
		Sales []client.AdminSale `json:"sales"`
	}
	if err := o.call(ctx, "GET", "/admin/v1/sales", nil, &answer); err != nil {
		return "", err
	}
	var ids []string
	for _, s := range answer.Sales {
		if !sale.IsRehearsal(s.ID) && s.ID != demoSale {
			ids = append(ids, s.ID)
		}
	}
	switch {
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) > 1:
		return "", usage("which sale? one of %s", strings.Join(ids[:min(len(ids), 10)], ", "))
	case len(answer.Sales) > 0:
		return demoSale, nil
	}
	return "", errors.New("there is no sale to rehearse: sluice sale create makes one")
}

// writeRehearsal writes the report's files and prints its summary.
func (p *program) writeRehearsal(o *adminClient, f rehearseFlags, report *rehearsal.Report) error {
	var files []string
	if !f.noFiles {
		for suffix, write := range map[string]func(io.Writer) error{".html": report.WriteHTML, ".json": report.WriteJSON} {
			path := filepath.Join(f.out, report.Copy.ID+suffix)
			file, err := os.Create(path)
			if err != nil {
				return err
			}
			if err := errors.Join(write(file), file.Close()); err != nil {
				return err
			}
			if suffix == ".html" {
				files = append(files, path)
			}
		}
	}
	if o.json {
		return report.WriteJSON(p.out)
	}
	if err := report.WriteText(p.out); err != nil {
		return err
	}
	for _, path := range files {
		fmt.Fprintf(p.out, "\nThe report: %s\n", path)
	}
	return nil
}
