package events

import (
	"errors"
	"fmt"
	"strings"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// ErrWrongType reports that the key of the event stream holds another type. The relay and all groups wait until it is
// moved.
var ErrWrongType = errors.New("the key of the event stream holds another type: move or delete it")

// ErrRemoved reports that the group was removed while its consumer ran.
var ErrRemoved = errors.New("the group was removed")

// ErrNoGroup reports that no group has this name, in SQL or Redis. It wraps sale.ErrNotFound.
var ErrNoGroup = fmt.Errorf("there is no group of this name: %w", sale.ErrNotFound)

// ErrNoDeadLetter reports that a group has no dead letter of this event. It wraps sale.ErrNotFound.
var ErrNoDeadLetter = fmt.Errorf("there is no such dead letter: %w", sale.ErrNotFound)

// wrap adds the operation to err, and sale.ErrUnavailable where Redis is the cause.
func wrap(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("events: %s: %w: %w", operation, ErrWrongType, err)
	case !errors.Is(err, sale.ErrUnavailable) && redisconn.Unavailable(err):
		return fmt.Errorf("events: %s: %w: %w", operation, sale.ErrUnavailable, err)
	}
	return fmt.Errorf("events: %s: %w", operation, err)
}

func isNotFound(err error) bool { return errors.Is(err, sale.ErrNotFound) }

// noGroup reports whether the group or the stream does not exist in Redis.
func noGroup(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "no such key"))
}
