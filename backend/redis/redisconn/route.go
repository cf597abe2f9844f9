package redisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Route returns a client that sends every command to the client that pick returns for its first key. It splits a
// pipeline into one pipeline per client and sends them concurrently. The keys of a script, and those of a transaction,
// must belong to one client. Connections of its own (Conn, Subscribe, Watch) and commands without a key fail. The
// caller closes the clients; closing the returned one has no effect on them.
//
// A key is the first argument with a hash tag, "sluice:{tag}:...", which every key of package keyspace has.
func Route(pick func(key string) Client) Client {
	return hooked("several servers", router{pick}.run)
}

// hooked returns a client without connections. The hook executes its commands. addr is its name in errors.
func hooked(addr string, hook Around) Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: noDial, MaxRetries: -1,
		MaintNotificationsConfig: withoutMaintenance,
	})
	c.AddHook(hook)
	return c
}

var errNoKey = errors.New("redisconn: the command has no key, so its server is not known")

func noDial(context.Context, string, string) (net.Conn, error) { return nil, errNoKey }

// router is the hook of Route.
type router struct {
	pick func(key string) Client
}

// client returns the client for a command, or nil if it has no key.
func (r router) client(cmd redis.Cmder) Client {
	args := cmd.Args()
	first := 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		first = firstKey
	}
	for _, arg := range args[min(first, len(args)):] {
		if key, ok := arg.(string); ok && strings.HasPrefix(key, keyPrefix) {
			return r.pick(key)
		}
	}
	return nil
}

const keyPrefix = "sluice:{"

func (r router) run(ctx context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
	if len(cmds) > 0 && cmds[0].Name() == "multi" { // its commands are between MULTI and EXEC
		return r.transact(ctx, cmds)
	}
	byClient := map[Client][]redis.Cmder{}
	for _, cmd := range cmds {
		client := r.client(cmd)
		if client == nil {
			cmd.SetErr(errNoKey)
			continue
		}
		if len(cmds) == 1 { // it may block
			return client.Process(ctx, cmd)
		}
		byClient[client] = append(byClient[client], cmd)
	}
	var sending sync.WaitGroup
	for client, cmds := range byClient { // each command has its error
		if len(byClient) == 1 {
			_ = send(ctx, client.Pipeline(), cmds)
		} else {
			sending.Go(func() { _ = send(ctx, client.Pipeline(), cmds) })
		}
	}
	sending.Wait()
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// transact sends a transaction to the client of its first key.
func (r router) transact(ctx context.Context, cmds []redis.Cmder) error {
	inner := cmds[1 : len(cmds)-1]
	for _, cmd := range inner {
		if client := r.client(cmd); client != nil {
			return send(ctx, client.TxPipeline(), inner)
		}
	}
	for _, cmd := range cmds {
		cmd.SetErr(errNoKey)
	}
	return errNoKey
}

func send(ctx context.Context, pipe redis.Pipeliner, cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}
