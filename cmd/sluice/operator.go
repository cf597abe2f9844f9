package main

import (
	"bytes"
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
)

// operator calls the operator's API of a running sluice.
type operator struct {
	p            *program
	server, data string
	as           string // who does it; empty: the user of this machine
	json         bool
	base, token  string
	group        string // of sluice dead
}

// operatorFlags adds the flags that all operator commands share.
func (p *program) operatorFlags(c *cobra.Command) *operator {
	o := &operator{p: p}
	o.flags(c.PersistentFlags())
	return o
}

func (o *operator) flags(f *pflag.FlagSet) {
	o.p.str(f, &o.server, "server", envServer, "", "URL of the operator's API (default: what the data folder says)")
	o.p.str(f, &o.data, "data", envData, defaultData, "data folder of sluice up")
	o.p.str(f, &o.as, "as", envOperator, "", "your name in the log of what operators did (default: your user name on this machine)")
	f.BoolVar(&o.json, "json", false, "print the answer as JSON")
}

// resolve finds out where to call and with what token.
func (o *operator) resolve() error {
	d := dataDir(o.data)
	o.base = o.server
	if o.base == "" {
		s, err := d.server()
		if err != nil {
			return usage("no --server given, and no sluice up has used the data folder %s", o.data)
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
			return usage("%s is not set, and the data folder %s has no admin token", envAdminToken, o.data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// call sends a request and decodes a successful answer into out, which may be nil. A refusal's detail becomes the error.
// header holds further names and values in turn.
func (o *operator) call(ctx context.Context, method, path string, body, out any, header ...string) error {
	if err := o.resolve(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, o.base+path, payload)
	if err != nil {
		return usage("--server: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if o.as != "" {
		req.Header.Set("X-Actor", o.as)
	} else if u, err := user.Current(); err == nil {
		req.Header.Set("X-Actor", u.Username)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("nobody answers at %s: is sluice running? (%w)", o.base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", o.base, err)
	}
	if resp.StatusCode >= 300 {
		return refusal(resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer as a sluice: %w", o.base, err)
	}
	return nil
}

func refusal(status int, body []byte) error {
	var problem struct {
		Title, Detail string
		Errors        []struct{ Field, Detail string }
	}
	if json.Unmarshal(body, &problem) != nil || problem.Title == "" {
		return &statusError{status, fmt.Sprintf("the server answered %d", status)}
	}
	text := problem.Title
	if problem.Detail != "" {
		text = problem.Detail
	}
	var fields []string
	for _, f := range problem.Errors {
		fields = append(fields, f.Field+" "+f.Detail)
	}
	if len(fields) > 0 {
		text += " (" + strings.Join(fields, "; ") + ")"
	}
	if status == http.StatusBadRequest {
		return usage("%s", text)
	}
	return &statusError{status, text}
}

// statusError is a refusal that is nobody's mistake.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// get asks for an answer that is shown as it came, and decodes it into out as well.
func (o *operator) get(ctx context.Context, path string, out any) (raw json.RawMessage, err error) {
	if err := o.call(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return nil, err
	}
	return raw, json.Unmarshal(raw, out)
}

// each does the same with several things, one after the other, and says what became of each. It ends with the first that fails.
func (o *operator) each(names []string, do func(name string) (became string, err error)) error {
	for _, name := range names {
		became, err := do(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !o.json {
			fmt.Fprintf(o.p.out, "%s %s\n", name, became)
		}
	}
	return nil
}

// table prints rows whose cells have tabs between them.
func table(w io.Writer, head string, rows func(t io.Writer)) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(t)
	t.Flush()
}

// show prints v as JSON with --json, else as people read it.
func (o *operator) show(v any, table func(w io.Writer)) error {
	if !o.json {
		table(o.p.out)
		return nil
	}
	e := json.NewEncoder(o.p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
