package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"sluice/client"
)

// problemStatus returns the HTTP status of a problem, 0 for any other error and for nil.
func problemStatus(err error) int {
	if p, answered := errors.AsType[*client.Problem](err); answered {
		return p.Status
	}
	return 0
}

// mayBeDone reports whether the server may have executed a request that returned this error.
func mayBeDone(err error) bool {
	_, unsent := errors.AsType[usageError](err)
	status := problemStatus(err)
	return err != nil && !unsent && (status == 0 || status >= http.StatusInternalServerError)
}

// explain describes the error of a call to the user of a command with these flags.
func explain(base string, flags *pflag.FlagSet, err error) error {
	if err == nil {
		return nil
	}
	if p, refused := errors.AsType[*client.Problem](err); refused {
		if p.Status == http.StatusUnauthorized {
			return clearer{base + ": wrong admin token: " + envAdminToken + " must have the value of the backend; " +
				"for sluice up, it is in the file admin.token of its data directory (--data)", p}
		}
		if p.Status == http.StatusBadRequest || p.Code == client.TooLarge {
			return usageError{Err: invalid(p, flags)}
		}
		if p.Status == http.StatusNotFound && p.Detail == "Not found." { // no such route
			return fmt.Errorf("%w Is %s the admin listener (--admin of the backend)?", p, base)
		}
		if p.Code == "" && p.Status < http.StatusInternalServerError { // a redirect, or a refusal by a proxy
			return fmt.Errorf("%s is not a server of sluice: %w", base, p)
		}
		return p
	}
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	if lost, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("no response from %s: start sluice, or set --server to its admin address (%w)", base, lost.Err)
	}
	if errors.Is(err, client.ErrNoResponse) {
		return fmt.Errorf("%s: %w", base, err)
	}
	return fmt.Errorf("%s is not a server of sluice: %w", base, err)
}

// clearer is a problem with another text, for the user of a command.
type clearer struct {
	text string
	*client.Problem
}

func (e clearer) Error() string { return e.text }
func (e clearer) Unwrap() error { return e.Problem }

// invalid describes the invalid fields of a request by the flags that set them.
func invalid(p *client.Problem, flags *pflag.FlagSet) error {
	if len(p.Errors) == 0 {
		return p
	}
	var fields []string
	for _, f := range p.Errors {
		words := strings.Fields(f.Detail)
		for i, word := range words {
			if strings.Contains(word, "_") { // another field
				words[i] = flagOf(word, flags)
			}
		}
		fields = append(fields, flagOf(f.Field, flags)+" "+strings.Join(words, " "))
	}
	return clearer{strings.Join(fields, "; "), p}
}

// flagOf returns the flag that sets a field of a request, such as --opens for opens_at or --type for types, else the
// field.
func flagOf(field string, flags *pflag.FlagSet) string {
	name, _, _ := strings.Cut(field, ".")
	name = strings.ReplaceAll(strings.TrimSuffix(name, "_at"), "_", "-")
	for _, name := range []string{name, strings.TrimSuffix(name, "s")} { // types is a list of --type
		if flags != nil && flags.Lookup(name) != nil {
			return "--" + name
		}
	}
	return field
}

// resources describes the resources in paths of the admin API: what is their name, and list the command that lists
// them. besides is a remedy for a missing one. It replaces the remedy in the detail of the problem, which names paths.
var resources = map[string]struct{ what, list, besides string }{
	"sales": {what: "sale", list: "sluice sale list"},
	"orders": {"order", "sluice order list",
		"; a queued order is written soon, and a dead one is cancelled with sluice dead cancel"},
	"payments":   {what: "payment", list: "sluice payment list"},
	"dead":       {what: "dead letter", list: "sluice dead list"},
	"groups":     {what: "consumer group", list: "sluice group list"},
	"webhooks":   {what: "webhook endpoint", list: "sluice webhook list"},
	"rehearsals": {what: "rehearsal", list: "the admin console"},
	"deliveries": {what: "delivery", list: "sluice webhook deliveries ENDPOINT"},
}

// noSuch describes a resource that the server does not have. kind is a key of resources.
func noSuch(kind, name string) string {
	r := resources[kind]
	return fmt.Sprintf("there is no %s %q (see %s)%s", r.what, name, r.list, r.besides)
}

// missing describes the missing resource of a path of the admin API: the one that the detail names, or else the last
// one. A detail of more than one sentence has a remedy, which is kept unless resources has one.
func missing(path string, p *client.Problem) error {
	text := error(p)
	remedy := strings.Count(p.Detail, ".") > 1
	parts := strings.Split(path, "/")
	for i := range len(parts) - 1 {
		r, known := resources[parts[i]]
		if name, err := url.PathUnescape(parts[i+1]); known && err == nil && (!remedy || r.besides != "") {
			text = clearer{noSuch(parts[i], name), p}
			if parts[i] == "dead" && i > 1 && parts[i-2] == "groups" {
				text = clearer{fmt.Sprintf("there is no dead letter %q (see sluice dead --group %s list)", name, parts[i-1]), p}
			}
			if strings.Contains(p.Detail, r.what) {
				return text
			}
		}
	}
	return text
}

// named prefixes an error with the name that it concerns, unless the text quotes it.
func named(name string, err error) error {
	if strings.Contains(err.Error(), strconv.Quote(name)) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
