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
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/client"
)

// adminClient calls the admin API. All commands of a program share it, and only one of them runs.
type adminClient struct {
	p            *program
	server, data string
	as           string         // actor in the action log; empty: the user of this machine
	base         string         // address, once connected
	running      *pflag.FlagSet // flags of the command that runs, for errors; nil: errors name fields of requests
}

// adminCommand makes c the parent of commands that call the admin API, with the flags of o.
func (o *adminClient) adminCommand(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	o.flags(c.PersistentFlags())
	return parent(c, subs...)
}

func (o *adminClient) flags(set *pflag.FlagSet) {
	f := &flagSet{FlagSet: set, getenv: o.p.getenv}
	f.str(&o.server, "server", envServer, "", "URL of the admin API (default: from the data directory)")
	f.str(&o.data, "data", envData, defaultData, dataHelp)
	f.str(&o.as, "as", envAdminName, "", "your name in the action log (default: your user name on this machine)")
	f.json(&o.p.json)
}

func reasonFlag(c *cobra.Command, why *string) {
	c.Flags().StringVar(why, "reason", "", "reason for the action log")
}

func reason(why string) map[string]string { return map[string]string{"reason": why} }

const adminTimeout = 30 * time.Second

// connect returns a client of the admin API that the flags, the environment or the data directory name. It does not
// retry calls: the user decides that.
func (o *adminClient) connect() (*client.Admin, error) {
	actor, err := o.actor()
	if err != nil {
		return nil, err
	}
	d := dataDir(o.data)
	if o.base = withScheme(o.server); o.base == "" {
		s, err := d.server()
		if errors.Is(err, os.ErrNotExist) {
			return nil, usage("no server: set --server, or --data to the directory of a sluice up (none has used %s)", o.data)
		}
		if err != nil {
			return nil, usage("--data: %w", err)
		}
		o.base = s.Admin
	}
	token := o.p.getenv(envAdminToken)
	if token == "" {
		token, err = d.read(adminTokenFile)
		if errors.Is(err, os.ErrNotExist) {
			return nil, usage("no admin token: set %s, or --data to the directory of a sluice up (%s has none)",
				envAdminToken, o.data)
		}
		if err != nil {
			return nil, err
		}
	}
	if strings.ContainsFunc(token, unicode.IsControl) {
		return nil, usage("%s has control characters: want one line of text", envAdminToken)
	}
	options := append(once, client.WithTimeout(adminTimeout), client.WithActor(actor))
	c, err := client.NewAdmin(o.base, token, options...)
	if err != nil {
		return nil, usage("--server %q: want http://host:port", o.base)
	}
	return c, nil
}

// maxActor is the limit of the server for the name of an admin, in bytes.
const maxActor = 64

// actor returns the name for the action log: --as, or else the user of this machine. It returns "" if that user has a
// reserved name, as the user of the service may; the server then uses its default name.
func (o *adminClient) actor() (string, error) {
	if store.ReservedActor(o.as) {
		return "", usage("the admin name %q (--as, %s) is reserved for automatic actions: use another one",
			o.as, envAdminName)
	}
	if o.as != "" && (len(o.as) > maxActor || strings.TrimSpace(o.as) == "" || sale.ValidateBuyer(o.as) != nil) {
		return "", usage("the admin name %q (--as, %s): want at most %d bytes of text without control characters",
			o.as, envAdminName, maxActor)
	}
	if u, err := user.Current(); o.as == "" && err == nil && !store.ReservedActor(u.Username) {
		return u.Username, nil
	}
	return o.as, nil
}

// once are the options of calls that are not retried.
var once = []client.Option{
	client.WithHTTPClient(http.DefaultClient), client.WithRetry(client.Retry{Attempts: 1}), client.WithUserAgent("sluice"),
}

// do sends a request and decodes a successful response into out. A response must be JSON even if out is nil. The detail
// of a problem becomes the error.
func (o *adminClient) do(ctx context.Context, r client.Request, out any) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	if out == nil {
		out = &json.RawMessage{}
	}
	err = c.Do(ctx, r, out)
	if p, refused := errors.AsType[*client.Problem](err); refused && p.Status == http.StatusNotFound {
		var known json.RawMessage
		if c.Do(ctx, get(adminPath("sales")), &known) == nil { // base is an admin API, so the named resource is missing
			return missing(r.Path, p)
		}
	} else if refused && p.Code == client.Unavailable { // a store may respond and reject commands: its memory is full
		return fmt.Errorf("%w (sluice health --server %s names the component; "+
			"if it is ready, the log of the backend has the cause)", p, o.base)
	} else if refused && p.Status >= http.StatusInternalServerError {
		return fmt.Errorf("%w (the log of the backend %s has the cause)", p, o.base)
	}
	return explain(o.base, o.running, err)
}

func get(path string) client.Request { return client.Request{Method: http.MethodGet, Path: path} }

func post(path string, body any) client.Request {
	return client.Request{Method: http.MethodPost, Path: path, Body: body}
}

func adminPath(parts ...string) string {
	path := "/admin/v1"
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
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
			failed = named(name, err)
			break
		}
		results = append(results, result{name, became})
		if !o.p.json {
			fmt.Fprintf(o.p.out, "%s %s\n", name, became)
		}
	}
	return errors.Join(failed, o.p.show(results, func(io.Writer) {})) // as text they are printed already
}

func (o *adminClient) postEach(
	ctx context.Context, names []string, became string, body any, path func(name string) string,
) error {
	return o.each(names, func(name string) (string, error) { return became, o.do(ctx, post(path(name), body), nil) })
}

// postCommand makes c post a reason to the path of each argument.
func (o *adminClient) postCommand(c *cobra.Command, became string, path func(name string) string) *cobra.Command {
	var why string
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return o.postEach(cmd.Context(), args, became, reason(why), path)
	}
	reasonFlag(c, &why)
	return c
}

// removeCommand is postCommand for a permanent removal, which is confirmed. lost describes what is removed.
func (o *adminClient) removeCommand(c *cobra.Command, lost string, path func(name string) string) *cobra.Command {
	o.postCommand(c, "is removed", path)
	return o.confirmed(c, "remove", func(_ context.Context, name string) (string, error) {
		return "Removing " + name + " deletes " + lost + ".", nil
	})
}

// confirmed makes c prompt for each of its arguments before it runs, unless --yes is set. warning returns what the user
// confirms.
func (o *adminClient) confirmed(
	c *cobra.Command, verb string, warning func(ctx context.Context, name string) (string, error),
) *cobra.Command {
	yes := c.Flags().Bool("yes", false, verb+" without a prompt")
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if *yes {
				break
			}
			text, err := warning(cmd.Context(), name)
			if err == nil {
				err = o.p.confirm(cmd.Context(), text, name)
			}
			if err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
	return c
}

// listing is one page of a list: its items are in the member name.
type listing[T any] struct {
	name        string
	items       []T
	next        string // "" on the last page
	unavailable []int  // shards that could not be read
}

// UnmarshalJSON decodes the items, the link to the next page, a string or a positive number, and the unavailable
// shards.
func (l *listing[T]) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	l.next = ""
	if next := members["next"]; json.Unmarshal(next, &l.next) != nil && string(next) != "0" {
		l.next = string(next) // a number
	}
	if shards, present := members["unavailable_shards"]; present {
		if err := json.Unmarshal(shards, &l.unavailable); err != nil {
			return err
		}
	}
	return json.Unmarshal(members[l.name], &l.items)
}
