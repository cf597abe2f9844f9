package fleetlimit

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// startingRedis answers each lease as a server that has just started.
type startingRedis struct{ redis.Scripter }

func (startingRedis) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal([]any{int64(1), int64(1_000_000), int64(1)})
	return cmd
}

// Both edges warn once within startedPause that a server has started and grants no lease.
func TestRefusalsOfAStartedServerAreLogged(t *testing.T) {
	r := NewRule("buy", 10, 1_000_000, 20)
	for edge, take := range map[string]func(*Client, *slog.Logger) func(key string){
		"gateway": func(c *Client, log *slog.Logger) func(string) {
			l := NewLimiter(LimiterConfig{Client: c, Logger: log})
			return func(key string) { l.Take(r, key) }
		},
		"nginx": func(c *Client, log *slog.Logger) func(string) {
			s := &Server{client: c, log: log}
			return func(key string) {
				if _, err := s.answer(t.Context(), "lease buy 10 1000000 20 "+key+" 1 1"); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(edge, func(t *testing.T) {
			var out bytes.Buffer
			now := 0.0
			call := take(NewClient(startingRedis{}, func() float64 { return now }), slog.New(slog.NewTextHandler(&out, nil)))
			for i, want := range []int{1, 1, 2} {
				if i == 2 {
					now += float64(startedPause.Microseconds())
				}
				call("0" + strconv.Itoa(i))
				if n := strings.Count(out.String(), "grants no lease"); n != want {
					t.Errorf("after lease %d the log has %d warnings, want %d: %s", i, n, want, out.String())
				}
			}
		})
	}
}
