package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/gateway/policy"
	"sluice/nginx"
)

// edgeReload returns the command that reloads the edge of a directory, which is known when it runs.
func (p *program) edgeReload(prefix *string) *cobra.Command {
	return &cobra.Command{
		Use: "reload",
		Short: "Reload the policy, the token keys and the configuration of the running edge; invalid ones are rejected " +
			"and the current ones stay",
		Long: `Reload the policy, the token keys and the configuration of the running edge. Invalid ones are rejected,
and the current ones stay.

Requests in progress are completed, for at most 15 seconds. Client connections end: for a tenth of a
second the old workers answer HTTP/1.x requests with "Connection: close", then they close the idle
connections. A client that sends at that moment sees a reset and must repeat its request.`,
		Example: `  sluice edge reload
  sluice edge reload --prefix /var/lib/sluice-edge`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running := nginx.Config{Prefix: *prefix, Secret: p.getenv(envSecret), Log: p.errOut}
			err := reloadEdge(cmd.Context(), running)
			if bad, ok := errors.AsType[policyError](err); ok {
				fmt.Fprintln(p.errOut, bad) // as sluice policy check does
				return errReported
			}
			return edgeError(err)
		},
	}
}

// policyError is an error in a policy: "FILE:LINE: problem".
type policyError struct{ error }

// reloadEdge checks the policy of the running edge, and reloads it.
func reloadEdge(ctx context.Context, running nginx.Config) error {
	file, leases, err := running.RunningPolicy()
	if err != nil {
		return fmt.Errorf("%w: set --prefix to the directory of the running edge", err)
	}
	file = shortPath(file)
	read, err := policy.Read(file)
	if err != nil {
		return policyError{err}
	}
	if !leases {
		if err := read.CheckFleet(file); err != nil {
			return usageError{Err: err}
		}
	}
	return running.Reload(ctx)
}

// shortPath returns the relative path of a file below the working directory, and the path of any other.
func shortPath(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	if short, err := filepath.Rel(wd, file); err == nil && filepath.IsLocal(short) {
		return short
	}
	return file
}

func (p *program) reloadOnHangup(ctx context.Context, cfg nginx.Config) {
	switch err := reloadEdge(ctx, cfg); {
	case ctx.Err() != nil:
	case err != nil:
		p.logger().Error("the reload is rejected, the previous policy, keys and configuration stay in use",
			"err", oneLine(err))
	default:
		p.logger().Info("reloading")
	}
}
