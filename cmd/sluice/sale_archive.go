package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/assemble"
)

func (o *adminClient) saleArchive() *cobra.Command {
	stores := assemble.StoresConfig{Existing: true}
	var dir, endedBefore string
	var before time.Time
	c := &cobra.Command{
		Use:   "archive [SALE...]",
		Short: "Move the orders of ended sales from the database to compressed files",
		Long: `Write the orders and payments of ended sales to files, verify the files, and remove the rows in
batches, while other sales run. The sale stays, with the numbers of its orders; purchases of it are
answered as closed. A sale is rejected if it is not closed, has not ended by the clock of Redis, does
not balance, or has unpaid orders with a hold, open refunds, unhandled events or webhooks that wait.
An interrupted run can be repeated at any time, also with another directory: a later file has the
orders that an earlier one lacks.

The command connects to Redis and to the database itself, as a worker does. The database must be that
of the running deployment, with tables of the version of this program, and must respond: the command
does not create it, migrate it or wait for it.`,
		Example: `  sluice sale archive shoe --output /var/backups/sluice --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice
  sluice sale archive --ended-before 2026-01-01 --output /var/backups/sluice --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice
  zcat /var/backups/sluice/shoe-1-*.ndjson.gz | jq -c 'select(.order) | .order'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && endedBefore != "":
				return usage("name sales, or set --ended-before")
			case len(args) == 0 && endedBefore == "":
				return usage("name a sale, or set --ended-before 2026-01-01")
			}
			actor, err := o.actor()
			if err != nil {
				return err
			}
			s, closeStores, err := o.p.openStores(cmd.Context(), "sluice-archive", stores, newRegistry())
			if err != nil {
				return err
			}
			defer closeStores()
			_ = s.CheckRedis(cmd.Context()) // an error is ignored: the guard then reports it as well
			if len(args) == 0 {
				if args, err = s.EndedSales(cmd.Context(), before); err != nil {
					return orInterrupted(cmd.Context(), err)
				}
			}
			guarding, stop := context.WithCancel(cmd.Context())
			g, ctx := errgroup.WithContext(store.WithActor(cmd.Context(), cmp.Or(actor, "admin")))
			g.Go(func() error { return s.RunGuard(guarding) })
			g.Go(func() error {
				defer stop()
				return o.archiveAll(ctx, s, args, dir)
			})
			return orInterrupted(cmd.Context(), g.Wait())
		},
	}
	f := o.p.flags(c)
	f.stores(&stores)
	f.StringVar(&dir, "output", "", "existing directory for the files")
	f.StringVar(&endedBefore, "ended-before", "", "archive all sales that ended before a day, 2026-01-01 (UTC)")
	f.check(func(bad *problems) {
		if info, err := os.Stat(dir); dir == "" {
			bad.add("--output is missing: name an existing directory for the files")
		} else if err != nil || !info.IsDir() {
			bad.add("--output %q: want an existing directory", dir)
		}
		if endedBefore != "" {
			var err error
			if before, err = time.Parse(time.DateOnly, endedBefore); err != nil {
				bad.add("--ended-before %q: want a day, such as 2026-01-01", endedBefore)
			}
		}
	})
	return c
}

// notArchived describes why a sale is not archived. The text of sale.ErrConflict follows the reasons and adds nothing.
func notArchived(id string, err error) error {
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return errors.New(noSuch("sales", id))
	case errors.Is(err, sale.ErrConflict):
		return errors.New(strings.TrimSuffix(err.Error(), ": "+sale.ErrConflict.Error()))
	}
	return err
}

// archiveAll archives sales one after the other. A sale that is rejected does not prevent the next one.
func (o *adminClient) archiveAll(ctx context.Context, s *assemble.Stores, ids []string, dir string) error {
	type archived struct {
		Sale     string `json:"sale"`
		Orders   int64  `json:"orders"`
		Payments int64  `json:"payments"`
		Files    int    `json:"files"`
	}
	all := []archived{}
	var failed error // the last one
	for _, id := range ids {
		a, err := s.Archive(ctx, id, dir)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if failed = notArchived(id, err); len(ids) > 1 {
				report(o.p.errOut, failed)
			}
			continue
		}
		all = append(all, archived{id, a.Orders, a.Payments, len(a.Parts)})
	}
	err := o.p.show(map[string]any{"archived": all}, func(w io.Writer) {
		if len(all) > 0 || failed == nil {
			table(w, "SALE\tORDERS\tPAYMENTS\tFILES", all, func(a archived) []any {
				return []any{a.Sale, a.Orders, a.Payments, a.Files}
			})
		}
	})
	if err != nil {
		return err
	}
	if failed != nil && len(ids) > 1 {
		return fmt.Errorf("%d of %d sales are not archived", len(ids)-len(all), len(ids))
	}
	return failed
}
