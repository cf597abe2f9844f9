package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/order"
	"sluice/backend/redisconn"
)

func (p *program) healthCommand() *cobra.Command {
	var server, data string
	c := &cobra.Command{
		Use:   "health",
		Short: "Tell by the exit code whether sluice is ready, for container health checks",
		Long: `Ask /readyz of the server that --server or the data folder names. Where neither does, as beside a worker, ask Redis and the database
of the environment whether they answer.`,
		Example: `  sluice health --server http://127.0.0.1:8081`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			redisconn.Quiet(slog.New(slog.DiscardHandler))
			if s, err := dataDir(data).server(); server == "" && err == nil {
				server = s.Admin
			}
			switch {
			case server != "":
				return p.askReady(ctx, server)
			case p.getenv(envRedis) != "" || p.getenv(envDatabase) != "":
				return errors.Join(p.askRedis(ctx), p.askDatabase(ctx))
			}
			return usage("nothing to ask: no --server, no sluice up in %s, and neither %s nor %s is set", data, envRedis, envDatabase)
		},
	}
	p.str(c.Flags(), &server, "server", envServer, "", "URL of a listener of sluice")
	p.str(c.Flags(), &data, "data", envData, defaultData, "data folder of sluice up")
	return c
}

func (p *program) askReady(ctx context.Context, server string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+"/readyz", nil)
	if err != nil {
		return usage("--server: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("not ready: %w", refusal(resp.StatusCode, body))
	}
	return nil
}

func (p *program) askRedis(ctx context.Context) error {
	client, err := redisconn.Open(p.getenv(envRedis))
	if err != nil {
		return usage("%s: %w", envRedis, err)
	}
	defer client.Close()
	return client.Ping(ctx).Err()
}

func (p *program) askDatabase(ctx context.Context) error {
	return order.Probe(ctx, p.getenv(envDatabase))
}
