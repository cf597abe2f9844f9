package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// maxQueued bounds the commands that wait for a slow Redis. Further commands fail immediately.
const maxQueued = 20_000

// Pipeline is a client that shares round trips between concurrent script calls. A call returns when its context ends,
// while the script may still run: scripts must be replay-safe, and callers must not reuse the arguments. Other commands
// use the client directly. A Pipeline is safe for concurrent use.
type Pipeline struct {
	redis.Cmdable
	submit func(ctx context.Context, cmd redis.Cmder) error // waits for the reply
}

// NewPipeline returns a Pipeline over a client. The caller closes the client.
func NewPipeline(client Client) (*Pipeline, error) {
	o := redis.DefaultAutoPipelineOptions()
	// Several small batches are in flight: while Redis runs one, this process reads the replies of another. With one large
	// batch, Redis and this process would take turns. The order of callers does not matter, because script calls are
	// independent.
	o.MaxBatchSize, o.MaxConcurrentBatches, o.Unordered = 16, 4, true
	o.MaxQueuedCommands = maxQueued
	auto, err := client.(*redis.Client).AsyncAutoPipelineWithOptions(o)
	if err != nil {
		return nil, err
	}
	return &Pipeline{client, func(ctx context.Context, cmd redis.Cmder) error {
		return auto.Submit(ctx, cmd).WaitContext(ctx)
	}}, nil
}

// NewPipelines returns a Pipeline that runs each script in the one that pick returns for its first key; a script must
// have a key. Other commands use the client directly.
func NewPipelines(client redis.Cmdable, pick func(key string) *Pipeline) *Pipeline {
	return &Pipeline{client, func(ctx context.Context, cmd redis.Cmder) error {
		return pick(cmd.Args()[firstKey].(string)).submit(ctx, cmd)
	}}
}

// firstKey is the index of the first key in the arguments of EVAL and EVALSHA.
const firstKey = 3

// EvalSha runs a script by its digest, in a shared round trip.
func (p *Pipeline) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return p.run(ctx, "evalsha", sha, keys, args)
}

// Eval runs a script by its text, in a shared round trip.
func (p *Pipeline) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return p.run(ctx, "eval", script, keys, args)
}

func (p *Pipeline) run(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, firstKey+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(firstKey)
	if err := p.submit(ctx, cmd); err != nil && ctx.Err() != nil {
		late := redis.NewCmd(ctx) // the pipeline still uses cmd
		late.SetErr(ctx.Err())
		return late
	}
	return cmd
}
