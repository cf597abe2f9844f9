package fleetlimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// silent is a server that does not respond.
type silent struct{ redis.Scripter }

func (silent) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	<-ctx.Done()
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(ctx.Err())
	return cmd
}

// A server that does not respond delays a step of Run by two timeouts, and not by one for each tag.
func TestSilentServerDelaysTheStartOnlyBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		NewClient(silent{}, nil).begin(t.Context())
		if took := time.Since(began); took > 2*timeout {
			t.Errorf("begin took %v", took)
		}
	})
}
