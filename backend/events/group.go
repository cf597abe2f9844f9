package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// maxGroupName is the maximum length of a group's name in characters.
const maxGroupName = 64

// ValidateGroup checks the name of a group. It is part of URLs and commands, so it has only lower-case letters, digits
// and hyphens, and begins with a letter. The error is a *sale.InvalidError.
func ValidateGroup(name string) error {
	ok := name != "" && len(name) <= maxGroupName && name[0] >= 'a' && name[0] <= 'z' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	if ok {
		return nil
	}
	return sale.Invalid("group",
		fmt.Sprintf("must be 1 to %d lower-case letters, digits and -, and begin with a letter", maxGroupName))
}

// Register registers a group in SQL and in Redis. The group receives all events that are still stored, and events from
// now on are kept until its consumers have acknowledged them. A registered group is left unchanged. An error wraps
// sale.ErrUnavailable.
func Register(ctx context.Context, db *Store, client redisconn.Client, space keyspace.Space, name string) error {
	g, err := db.AddGroup(ctx, name, false)
	if err != nil {
		return err
	}
	return join(ctx, client, space, g)
}

// join creates a registered group in Redis, and the stream, if they do not exist.
func join(ctx context.Context, client redisconn.Client, space keyspace.Space, g Group) error {
	err := client.XGroupCreateMkStream(ctx, space.Events(), g.Name, streamID(g.Start)).Err()
	if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
		return wrap("create group "+g.Name, err)
	}
	return nil
}

// destroy removes a group from Redis, if it exists.
func destroy(ctx context.Context, client redisconn.Client, space keyspace.Space, name string) error {
	err := client.XGroupDestroy(ctx, space.Events(), name).Err()
	if err != nil && !noGroup(err) && !strings.Contains(err.Error(), "requires the key to exist") {
		return wrap("remove group "+name, err)
	}
	return nil
}

// groupsInRedis returns the groups that Redis has, also those of programs that are not registered in SQL; none if there
// is no stream.
func groupsInRedis(ctx context.Context, client redisconn.Client, space keyspace.Space) ([]redis.XInfoGroup, error) {
	groups, err := client.XInfoGroups(ctx, space.Events()).Result()
	if noGroup(err) {
		return nil, nil
	}
	return groups, wrap("read the groups", err)
}

// newestPosition returns the position of the newest event in the stream; 0: there is none.
func newestPosition(ctx context.Context, client redisconn.Client, space keyspace.Space) (int64, error) {
	newest, err := client.XRevRangeN(ctx, space.Events(), "+", "-", 1).Result()
	if err != nil || len(newest) == 0 {
		return 0, wrap("read the end of the stream", err)
	}
	return PositionOf(newest[0].ID), nil
}

func streamID(position int64) string { return fmt.Sprintf("%d-0", position) }

// PositionOf returns the position of the stream entry with this id; 0 for an entry of another program.
func PositionOf(id string) int64 {
	head, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
