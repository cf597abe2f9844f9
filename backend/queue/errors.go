package queue

import (
	"fmt"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

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
