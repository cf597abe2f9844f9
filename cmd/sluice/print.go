package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/client"
	"sluice/internal/plural"
)

// show prints v as JSON with --json, else as text. It does not report failed writes of text; run does.
func (p *program) show(v any, text func(w io.Writer)) error {
	if !p.json {
		text(p.out)
		return nil
	}
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// print sends a request, decodes the response into answer and prints it: unchanged with --json, else as text.
func (o *adminClient) print(ctx context.Context, r client.Request, answer any, text func(w io.Writer)) error {
	raw, err := o.fetch(ctx, r, answer)
	if err != nil {
		return err
	}
	return o.p.show(raw, text)
}

// fetch sends a request, decodes the response into answer and returns it.
func (o *adminClient) fetch(ctx context.Context, r client.Request, answer any) (raw json.RawMessage, err error) {
	if err := o.do(ctx, r, &raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, fmt.Errorf("the response of %s is not that of a sluice server: %w", r.Path, err)
	}
	return raw, nil
}

type pageFlags struct {
	after string
	limit int
}

func (f *pageFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.after, "after", "", "cursor printed by the previous page")
	c.Flags().IntVar(&f.limit, "limit", 100, "maximum number of results")
}

// request returns the request for a page. The query has names and values in turn. Empty values are left out.
func (f *pageFlags) request(path string, query ...string) client.Request {
	r := get(path)
	r.Query = url.Values{"limit": {strconv.Itoa(f.limit)}}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			r.Query.Set(query[i], query[i+1])
		}
	}
	return r
}

// printList prints a list of the admin API as a table. The member of the response with its items has the name of the
// last part of the path. An empty list of a sale that does not exist, the parameter sale of the query, is an error.
func printList[T any](
	ctx context.Context, o *adminClient, r client.Request, head string, cells func(item T) []any,
) error {
	answer := listing[T]{name: path.Base(r.Path)}
	raw, err := o.fetch(ctx, r, &answer)
	if err != nil {
		return err
	}
	if sale := r.Query.Get("sale"); sale != "" && len(answer.items) == 0 {
		if err := o.requireSale(ctx, sale); err != nil {
			return err
		}
	}
	o.p.reportUnavailable(answer.unavailable)
	return o.p.show(raw, func(w io.Writer) {
		table(w, head, answer.items, cells)
		if answer.next != "" {
			fmt.Fprintf(w, "more: --after %s\n", answer.next)
		}
	})
}

// reportUnavailable reports on standard error that a list lacks shards. It prints nothing if there are none.
func (p *program) reportUnavailable(shards []int) {
	if len(shards) > 0 {
		fmt.Fprintf(p.errOut, "the list lacks %s: sluice shard list has the reason\n", plural.Named("shard", shards))
	}
}

// table prints items below a head with columns separated by tabs.
func table[T any](w io.Writer, head string, items []T, cells func(item T) []any) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, item := range items {
		var row []string
		for _, v := range cells(item) {
			row = append(row, visible(cell(v))) // escaped before the columns are aligned
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	t.Flush()
}

// fields prints names and values in turn, a line each. Empty values are left out.
func fields(w io.Writer, pairs ...any) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := cell(pairs[i+1]); text != "" {
			fmt.Fprintf(t, "%s\t%s\n", pairs[i], visible(text))
		}
	}
	t.Flush()
}

// seconds is a duration of the admin API; it prints as 1m30s, or as 3ms if it is shorter than a second.
type seconds float64

func (s seconds) String() string {
	d := time.Duration(s*1000) * time.Millisecond
	if d >= time.Second {
		d = d.Round(10 * time.Millisecond)
	}
	return d.String()
}

// cell formats a value for display: unknown numbers are "?", times that are not set are empty.
func cell(v any) string {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case *time.Time:
		if v == nil {
			return ""
		}
		return cell(*v)
	case *int64:
		return known(v)
	case *seconds:
		return known(v)
	case client.Price:
		return priceText(v)
	}
	return fmt.Sprint(v)
}

func known[T any](n *T) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

// listed joins names, or returns "all" without any.
func listed(names []string) string { return cmp.Or(strings.Join(names, ", "), "all") }
