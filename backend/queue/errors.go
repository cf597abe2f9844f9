package queue

import (
	"fmt"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// ErrNoUnit reports that no unit is left for a dead order in its shard. It wraps sale.ErrConflict.
var ErrNoUnit = fmt.Errorf("restock the sale, then retry: %w", sale.ErrConflict)

// wrap adds the operation to err, and sale.ErrUnavailable where Redis is the cause.
func wrap(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case redisconn.Unavailable(err):
		return fmt.Errorf("queue: %s: %w: %w", operation, sale.ErrUnavailable, err)
	}
	return fmt.Errorf("queue: %s: %w", operation, err)
}
