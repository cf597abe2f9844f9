package redisconn

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Unavailable reports whether err is a network error (a timeout, a refused or broken connection) or an answer of
// Redis that is temporary. A cancellation by the caller is neither.
func Unavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return true
	}
	return slices.ContainsFunc(temporary, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// temporary has the beginnings of temporary answers.
var temporary = []string{
	"LOADING ", "READONLY ", "OOM ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "NOREPLICAS ", "BUSY ", "MISCONF ",
	"max number of clients reached",
	"MOVED ", "ASK ", // the next connection is to the new master; the key is being moved
	"HELD",                  // a script found the shard being rebuilt
	"FOREIGN",               // a script found data of another deployment; the guard's next check blocks
	"EXECABORT",             // it rejected a command of a transaction, or EXEC, for one of the other causes
	"UNBLOCKED",             // a blocking call on a master that became a replica
	"NOAUTH ", "WRONGPASS ", // a changed password: Redis rejects every command, so no key is the cause
}

// Denied reports whether err is an answer of Redis to a wrong user, password or number of a database. Repeating the
// command cannot help.
func Denied(err error) bool {
	return redis.IsAuthError(err) || redis.HasErrorPrefix(err, "DB index") || redis.HasErrorPrefix(err, "invalid DB index")
}

// PipelineError returns the first error of the commands of a pipeline, or nil. A missing key (redis.Nil) is no error.
// Pipelined itself returns redis.Nil if an early command finds no key, even if a later command fails.
func PipelineError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
