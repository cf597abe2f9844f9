package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/client"
)

// adminClient calls the admin API of a running sluice.
type adminClient struct {
	p            *program
	server, data string
	as           string // actor in the admin log; empty: the user of this machine
	json         bool
	base, token  string
	group        string // of sluice dead
}

// adminFlags adds the flags that all admin commands share.
func (p *program) adminFlags(c *cobra.Command) *adminClient {
	o := &adminClient{p: p}
	o.flags(c.PersistentFlags())
	return o
}

func (o *adminClient) flags(f *pflag.FlagSet) {
	o.p.str(f, &o.server, "server", envServer, "", "URL of the admin API (default: from the data directory)")
	o.p.str(f, &o.data, "data", envData, defaultData, "data directory of sluice up")
	o.p.str(f, &o.as, "as", envAdminName, "", "your name in the admin log (default: your user name on this machine)")
	f.BoolVar(&o.json, "json", false, "print the answer as JSON")
}

// resolve finds out where to call and with what token.
func (o *adminClient) resolve() error {
	d := dataDir(o.data)
	o.base = o.server
	if o.base == "" {
		s, err := d.server()
		if err != nil {
			return usage("no server: set --server, or --data to the directory of a sluice up (none has used %s)", o.data)
		}
		o.base = s.Admin
	}
	u, err := url.Parse(o.base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return usage("--server %q: want http://host:port", o.base)
	}
	o.base = strings.TrimRight(o.base, "/")
	if o.token = o.p.getenv(envAdminToken); o.token == "" {
		o.token, err = d.read(adminTokenFile)
		if errors.Is(err, os.ErrNotExist) {
			return usage(
				"no admin token: set %s, or --data to the directory of a sluice up (%s has none)",
				envAdminToken,
				o.data,
			)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adminTimeout bounds one call.
const adminTimeout = 30 * time.Second

// call sends a request and decodes a successful answer into out, which may be nil. A refusal's detail becomes the
// error.
func (o *adminClient) call(ctx context.Context, method, path string, body, out any) error {
	return o.do(ctx, client.Request{Method: method, Path: path, Body: body}, out)
}

// do is call for requests that have more to them. Nothing is repeated: a person decides that.
func (o *adminClient) do(ctx context.Context, r client.Request, out any) error {
	if err := o.resolve(); err != nil {
		return err
	}
	options := []client.Option{
		client.WithHTTPClient(http.DefaultClient),
		client.WithRetry(client.Retry{Attempts: 1}),
		client.WithTimeout(adminTimeout),
		client.WithUserAgent("sluice"),
	}
	if o.as != "" {
		options = append(options, client.WithActor(o.as))
	} else if u, err := user.Current(); err == nil {
		options = append(options, client.WithActor(u.Username))
	}
	c, err := client.NewAdmin(o.base, o.token, options...)
	if err != nil {
		return usage("--server %q: want http://host:port", o.base)
	}
	return explain(o.base, c.Do(ctx, r, out))
}

// explain describes the error of a call to the user of a command.
func explain(base string, err error) error {
	if err == nil {
		return nil
	}
	if p, refused := errors.AsType[*client.Problem](err); refused {
		if p.Status == http.StatusBadRequest {
			return usageError{p}
		}
		return p
	}
	if lost, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("no answer from %s: is sluice running? (%w)", base, lost.Err)
	}
	if errors.Is(err, client.ErrNoResponse) {
		return fmt.Errorf("%s: %w", base, err)
	}
	return fmt.Errorf("%s does not answer as a sluice: %w", base, err)
}

// get returns an answer unchanged and decodes it into out as well.
func (o *adminClient) get(ctx context.Context, path string, out any) (raw json.RawMessage, err error) {
	if err := o.call(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return nil, err
	}
	return raw, json.Unmarshal(raw, out)
}

// each calls do for several names in turn and prints the results. It ends with the first error.
func (o *adminClient) each(names []string, do func(name string) (became string, err error)) error {
	type result struct {
		Name   string `json:"name"`
		Result string `json:"result"`
	}
	results := []result{}
	var failed error
	for _, name := range names {
		became, err := do(name)
		if err != nil {
			failed = fmt.Errorf("%s: %w", name, err)
			break
		}
		results = append(results, result{name, became})
		if !o.json {
			fmt.Fprintf(o.p.out, "%s %s\n", name, became)
		}
	}
	if o.json {
		return errors.Join(failed, o.p.printJSON(results))
	}
	return failed
}

// table prints rows with cells separated by tabs.
func table(w io.Writer, head string, rows func(t io.Writer)) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(visibleWriter{t}) // as it will be shown, so that columns stay in line
	t.Flush()
}

// show prints v as JSON with --json, else as people read it.
func (o *adminClient) show(v any, table func(w io.Writer)) error {
	if !o.json {
		table(o.p.out)
		return nil
	}
	return o.p.printJSON(v)
}

// printJSON prints v for programs.
func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
