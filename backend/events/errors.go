package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// ErrWrongType reports that the key of the event stream holds another type. The relay and all groups wait until it is
// moved.
var ErrWrongType = errors.New("the key of the event stream holds another type: move or delete it")

// ErrRemoved reports that the group was removed while its consumer ran.
var ErrRemoved = errors.New("the group was removed")

// ErrNoGroup reports that no group has this name, in SQL or Redis. It wraps sale.ErrNotFound.
var ErrNoGroup = fmt.Errorf("there is no group of this name: %w", sale.ErrNotFound)

// wrap adds the operation to err, and sale.ErrUnavailable where Redis is the cause.
func wrap(attempt string, err error) error {
	if err == nil || errors.Is(err, sale.ErrUnavailable) {
		return prefix(attempt, err)
	}
	var answer redis.Error
	switch {
	case errors.Is(err, context.Canceled):
	case redis.HasErrorPrefix(err, "WRONGTYPE") || errors.As(err, &answer) && strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("events: %s: %w: %w", attempt, ErrWrongType, err)
	case !errors.As(err, &answer) || transient(err):
		return fmt.Errorf("events: %s: %w: %w", attempt, sale.ErrUnavailable, err)
	}
	return prefix(attempt, err)
}

func prefix(attempt string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("events: %s: %w", attempt, err)
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
	return err != nil && strings.Contains(err.Error(), "NOGROUP") ||
		err != nil && strings.Contains(err.Error(), "no such key")
}
