package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// maxQueued bounds the commands that wait for a Redis that does not answer; one more fails at once.
const maxQueued = 20_000

// Pipeline is a client whose concurrent script calls share round trips. A call ends when its context does, though the script may still
// run: scripts must be replay-safe, and the arguments must not be reused. Other commands go straight to the client. It is safe for concurrent use.
type Pipeline struct {
	redis.Cmdable
	client *redis.Client
	auto   *redis.AutoPipeliner
}

// NewPipeline makes a Pipeline over a client, which stays the caller's to close.
func NewPipeline(client *redis.Client) (*Pipeline, error) {
	o := redis.DefaultAutoPipelineOptions()
	// Several small batches in flight: while Redis works on one, this process reads the answers of another. One large batch makes them
	// take turns. Order between callers does not matter: each script call stands for itself.
	o.MaxBatchSize, o.MaxConcurrentBatches, o.Unordered = 16, 4, true
	o.MaxQueuedCommands = maxQueued
	auto, err := client.AsyncAutoPipelineWithOptions(o)
	if err != nil {
		return nil, err
	}
	return &Pipeline{Cmdable: client, client: client, auto: auto}, nil
}

// EvalSha runs a script by its digest.
func (p *Pipeline) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return p.run(ctx, "evalsha", sha, keys, args)
}

// Eval runs a script by its text.
func (p *Pipeline) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return p.run(ctx, "eval", script, keys, args)
}

// Watch is the client's own; with it a Pipeline is what ulule/limiter asks for.
func (p *Pipeline) Watch(ctx context.Context, fn func(*redis.Tx) error, keys ...string) error {
	return p.client.Watch(ctx, fn, keys...)
}

func (p *Pipeline) run(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	if err := p.auto.Submit(ctx, cmd).WaitContext(ctx); err != nil && ctx.Err() != nil {
		late := redis.NewCmd(ctx) // cmd still belongs to the pipeline
		late.SetErr(ctx.Err())
		return late
	}
	return cmd
}
