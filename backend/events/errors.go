package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// ErrWrongType says that something else than the stream of events is stored under its key. A person has to move it; all waits meanwhile.
var ErrWrongType = errors.New("the key of the stream of events holds something else")

// ErrRemoved says that the group was removed while its consumer ran.
var ErrRemoved = errors.New("the group was removed")

// ErrNoGroup says that no group has a name: SQL does not know it, and nobody has made it in Redis by hand. It wraps sale.ErrNotFound.
var ErrNoGroup = fmt.Errorf("there is no group of this name: %w", sale.ErrNotFound)

// wrap says what was attempted, and adds sale.ErrUnavailable where Redis, and not the call, is at fault.
func wrap(attempt string, err error) error {
	if err == nil || errors.Is(err, sale.ErrUnavailable) {
		return prefix(attempt, err)
	}
	var answer redis.Error
	switch {
	case errors.Is(err, context.Canceled):
	case redis.HasErrorPrefix(err, "WRONGTYPE") || errors.As(err, &answer) && strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("event: %s: %w: %w", attempt, ErrWrongType, err)
	case !errors.As(err, &answer) || transient(err):
		return fmt.Errorf("event: %s: %w: %w", attempt, sale.ErrUnavailable, err)
	}
	return prefix(attempt, err)
}

func prefix(attempt string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("event: %s: %w", attempt, err)
}

// transient: the answers of Redis that mean "not now".
func transient(err error) bool {
	for _, is := range []func(error) bool{
		redis.IsLoadingError, redis.IsReadOnlyError, redis.IsOOMError, redis.IsMasterDownError, redis.IsClusterDownError,
		redis.IsTryAgainError, redis.IsNoReplicasError, redis.IsMaxClientsError,
	} {
		if is(err) {
			return true
		}
	}
	return redis.HasErrorPrefix(err, "BUSY ") || redis.HasErrorPrefix(err, "MISCONF")
}

// noGroup: Redis does not know the group, or not even the stream.
func noGroup(err error) bool {
	return err != nil && strings.Contains(err.Error(), "NOGROUP") || err != nil && strings.Contains(err.Error(), "no such key")
}
