package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/client"
	"sluice/internal/plural"
)

func (p *program) healthCommand() *cobra.Command {
	var server, data string
	c := &cobra.Command{
		Use:        "health",
		SuggestFor: []string{"status", "ping", "check"},
		Short:      "Report readiness by the exit code, for container health checks",
		Long: `Query /readyz of the server that --server or the data directory names. A backend is ready while it can
use one of its shards; the unavailable ones are printed. Without a server, for example beside a worker,
check that Redis and the database accept writes. A store that the environment does not name is not
checked.`,
		Example: `  sluice health                                     # the server of the data directory
  sluice health --server http://127.0.0.1:8081 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			redisconn.Quiet(slog.New(slog.DiscardHandler))
			s, err := dataDir(data).server()
			if server == "" && err == nil {
				server = s.Admin
			}
			stores := p.getenv(envRedis) != "" || p.getenv(envDatabase) != ""
			used, starting := dataDir(data).use()
			var state struct {
				Ready       bool   `json:"ready"`
				Why         string `json:"why,omitempty"` // the reason, when not ready
				Unavailable []int  `json:"unavailable_shards,omitempty"`
			}
			switch {
			case server != "":
				state.Unavailable, err = p.probeReady(ctx, server)
			case errors.Is(err, os.ErrNotExist) && (starting || used && !stores):
				err = fmt.Errorf("not ready: sluice up has not completed a start with --data %s", data)
			case stores:
				err = errors.Join(p.probeRedis(ctx), p.probeDatabase(ctx))
			case !errors.Is(err, os.ErrNotExist):
				return usage("--data: %w", err)
			default:
				return usage("nothing to check: set --server, --data (no sluice up has used %s), %s or %s",
					data, envRedis, envDatabase)
			}
			state.Ready = err == nil
			if err != nil {
				state.Why = oneLine(err)
			}
			return errors.Join(err, p.show(state, func(w io.Writer) { // the exit code reports everything else
				if len(state.Unavailable) > 0 {
					fmt.Fprintf(w, "ready without %s (sluice shard list has the reason)\n",
						plural.Named("shard", state.Unavailable))
				}
			}))
		},
	}
	f := p.flags(c)
	f.json(&p.json)
	f.str(&server, "server", envServer, "", "URL of a listener of sluice")
	f.str(&data, "data", envData, defaultData, dataHelp)
	return c
}

// probeReady checks whether a server is ready, and returns the shards that a ready backend cannot use.
func (p *program) probeReady(ctx context.Context, server string) (unavailable []int, err error) {
	server = withScheme(server)
	c, err := client.New(server, once...)
	if err != nil {
		return nil, usage("--server %q: want http://host:port", server)
	}
	var ready struct {
		Unavailable []int `json:"unavailable_shards"`
	}
	err = explain(server, nil, c.Do(ctx, get("/readyz"), &ready))
	if p, answered := errors.AsType[*client.Problem](err); answered && len(p.Errors) > 0 {
		var unusable []string
		for _, e := range p.Errors {
			unusable = append(unusable, e.Field+": "+e.Detail)
		}
		err = clearer{strings.Join(unusable, "; "), p}
	}
	if err != nil {
		return nil, fmt.Errorf("not ready: %w", err)
	}
	return ready.Unavailable, nil
}

// probeRedis checks the Redis of the environment, if it names one.
func (p *program) probeRedis(ctx context.Context) error {
	url := p.getenv(envRedis)
	if url == "" {
		return nil
	}
	client, err := redisconn.Open(url)
	if err != nil {
		return usage("%s: %w", envRedis, err)
	}
	defer client.Close()
	if err := redisconn.Writable(ctx, client, keyspace.Shard(0).RebuildLock()); err != nil {
		return fmt.Errorf("not ready: Redis: %w", err)
	}
	return nil
}

// probeDatabase checks the database of the environment, if it names one. A watcher has none.
func (p *program) probeDatabase(ctx context.Context) error {
	url := p.getenv(envDatabase)
	if url == "" {
		return nil
	}
	err := store.Probe(ctx, url)
	if invalid, ok := errors.AsType[*store.URLError](err); ok {
		return usage("%s: %w", envDatabase, invalid)
	}
	return err
}
