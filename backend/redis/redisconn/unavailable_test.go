package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
)

func TestUnavailableIsAnyErrorWithoutAnAnswer(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF: true, context.DeadlineExceeded: true, errors.New("connection refused"): true,
		context.Canceled: false, redis.Nil: false,
	} {
		if got := redisconn.Unavailable(fmt.Errorf("take: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestUnavailableKnowsTheTemporaryAnswers(t *testing.T) {
	server, client := openMini(t)
	for answer, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                         true,
		"READONLY You can't write against a read only replica.":                  true,
		"OOM command not allowed when used memory > 'maxmemory'.":                true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no": true,
		"NOREPLICAS Not enough good replicas to write.":                          true,
		"BUSY Redis is busy running a script.":                                   true,
		"MISCONF Errors writing to the AOF file: No space left on device":        true,
		"EXECABORT Transaction discarded because of: BUSY":                       true,
		"HELD the shard is being rebuilt":                                        true,
		"FOREIGN this shard belongs to another deployment":                       true,
		"UNBLOCKED force unblock from blocking operation":                        true,
		"MOVED 3999 " + server.Addr():                                            true,
		"ASK 3999 " + server.Addr():                                              true,
		"CLUSTERDOWN The cluster is down":                                        true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                true,
		"ERR max number of clients reached":                                      true,
		"NOAUTH Authentication required.":                                        true,
		"WRONGPASS invalid username-password pair or user is disabled.":          true,
		"BUSYGROUP Consumer Group name already exists":                           false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":      false,
		"ERR user_script:1: attempt to index a nil value":                        false,
	} {
		if err := client.Ping(t.Context()).Err(); err != nil { // connects
			t.Fatal(err)
		}
		server.SetError(answer)
		err := client.Get(t.Context(), "k").Err()
		server.SetError("")
		if err == nil || redisconn.Unavailable(fmt.Errorf("take: %w", err)) != want {
			t.Errorf("%v: want unavailable %v", err, want)
		}
	}
}
