package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/recovery/rebuild"
	"sluice/internal/loop"
	"sluice/internal/plural"
)

const progressEvery = 500 * time.Millisecond

func (o *adminClient) saleRebuild() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "rebuild [SALE | --all]",
		Short: "Rebuild a sale in Redis from SQL, the queue and the journals; exit 1 if its audit does not balance",
		Long: `Rebuild a sale from the orders in SQL, the messages in Redis and the backends' journals. Backends do
this automatically when Redis has restarted, failed over or was emptied; the command repairs a sale
with an audit that does not balance. No sale of its shard accepts purchases during a rebuild, which
takes seconds per million orders.`,
		Example: `  sluice sale rebuild shoe
  sluice sale rebuild --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{}
			switch {
			case len(args) == 1 && !all:
				if err := o.requireSale(cmd.Context(), args[0]); err != nil {
					return err
				}
				body["sale"] = args[0]
			case len(args) == 0 && all:
			default:
				return usage("name one sale, or --all")
			}
			var s rebuild.Status
			if err := o.do(cmd.Context(), post(adminPath("rebuild"), body), &s); err != nil {
				return err
			}
			started, status := s.Fence, o.p.status()
			defer status.done()
			for s.Running && s.Fence == started {
				if !o.p.json {
					status.show(progress(s))
				}
				if loop.Sleep(cmd.Context(), progressEvery); cmd.Context().Err() != nil {
					return errors.New("interrupted; the rebuild continues on the server")
				}
				if err := o.do(cmd.Context(), get(adminPath("rebuild")), &s); err != nil {
					return err
				}
			}
			status.done()
			if s.Fence != started {
				return fmt.Errorf("another rebuild, number %d, replaced it; see GET /admin/v1/rebuild", s.Fence)
			}
			return o.rebuilt(s)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every sale")
	return c
}

func progress(s rebuild.Status) string {
	switch {
	case s.Total > 0:
		return fmt.Sprintf("rebuild, step %-9s %d of %d", s.Step, min(s.Done, s.Total), s.Total)
	case s.Done > 0:
		return fmt.Sprintf("rebuild, step %-9s %d", s.Step, s.Done)
	}
	return "rebuild, step " + s.Step
}

func (o *adminClient) rebuilt(s rebuild.Status) error {
	if s.Error != "" {
		return errors.New(s.Error)
	}
	var bad []string
	err := o.p.show(s, func(w io.Writer) {
		for _, sale := range s.Sales {
			fmt.Fprintf(w, "%s: %s, %d left; %d queued again, %d without a unit, slots of %s corrected\n", sale.SaleID,
				plural.Count(sale.Orders, "order"), sale.Left, sale.Requeued, sale.Unbacked, plural.Count(sale.Corrected, "buyer"))
		}
		for _, id := range s.NotInSQL {
			fmt.Fprintf(w, "%s: the database does not have this sale, and it sells nothing: create it again with its "+
				"settings, then repeat the rebuild\n", id)
		}
	})
	for _, sale := range s.Sales {
		if !sale.Balanced {
			bad = append(bad, sale.SaleID+": "+sale.Why)
		}
	}
	if err == nil && len(bad) > 0 {
		err = errors.New(strings.Join(bad, "; "))
	}
	return err
}
