package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// wrap says what was attempted, and adds sale.ErrUnavailable where Redis, and not the call, is at fault.
func wrap(attempt string, err error) error {
	switch {
	case err == nil:
		return nil
	case unavailable(err):
		return fmt.Errorf("queue: %s: %w: %w", attempt, sale.ErrUnavailable, err)
	}
	return fmt.Errorf("queue: %s: %w", attempt, err)
}

// unavailable: whatever is not an answer of Redis (timeouts, refused and broken connections), and the answers that mean
// "not now". The caller's own cancellation is neither.
func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, is := range []func(error) bool{
		redis.IsLoadingError, redis.IsReadOnlyError, redis.IsOOMError, redis.IsMasterDownError, redis.IsClusterDownError,
		redis.IsTryAgainError, redis.IsNoReplicasError, redis.IsMaxClientsError,
	} {
		if is(err) {
			return true
		}
	}
	for _, prefix := range []string{
		"BUSY", "HELD", "MISCONF",
		"UNBLOCKED", // whoever waited on a master that has become a replica
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
