package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// wrap adds the operation to err, and sale.ErrUnavailable where Redis is the cause.
func wrap(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case unavailable(err):
		return fmt.Errorf("queue: %s: %w: %w", operation, sale.ErrUnavailable, err)
	}
	return fmt.Errorf("queue: %s: %w", operation, err)
}

// unavailable reports whether err is a network error (a timeout, a refused or broken connection) or an answer of
// Redis that is temporary. A cancellation by the caller is neither.
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
		"UNBLOCKED", // a blocking call on a master that became a replica
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
