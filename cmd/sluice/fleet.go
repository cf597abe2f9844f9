package main

import (
	"fmt"
	"log/slog"

	"sluice/backend/redis/redisconn"
	"sluice/internal/fleetlimit"
)

// openFleet returns a client for limits of the fleet, or nil without a URL. Call done when it is no longer used.
func openFleet(url string, log *slog.Logger) (client *fleetlimit.Client, done func(), err error) {
	if url == "" {
		return nil, func() {}, nil
	}
	redisconn.Quiet(log)
	server, err := redisconn.Open(url)
	if err != nil {
		return nil, nil, usage("--limit-redis: %w", err)
	}
	return fleetlimit.NewClient(server, fleetlimit.Now), func() {
		if err := server.Close(); err != nil {
			log.Warn("closing the limit Redis", "err", fmt.Sprint(err))
		}
	}, nil
}
