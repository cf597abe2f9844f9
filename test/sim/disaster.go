package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// calamity is what happens to Redis. When it starts again, all connections are cut.
type calamity int

// The calamities. With all but the first, acknowledged data may be lost.
const (
	intact  calamity = iota // it starts again with all data
	older                   // it starts again with the data of an earlier step
	emptied                 // it starts again without data
	flushed                 // it is emptied, and connections and late calls stay
	calamities
)

var calamityNames = [calamities]string{
	"starts again with all data", "starts again with older data", "starts again empty", "is emptied",
}

// disaster is a calamity at a step; Back is how many steps old the older data is.
type disaster struct {
	At   int
	Kind calamity
	Back int
}

// serverKey holds an id of the Redis server, like the run_id in INFO, which the embedded one lacks.
const serverKey = "sim:server"

// identify replaces guard.Identify.
func identify(ctx context.Context, c redis.Cmdable) (string, error) {
	return c.Get(ctx, serverKey).Result()
}

// startRedis gives the embedded Redis the id of a new server.
func (w *world) startRedis() {
	w.servers.Add(1)
	_ = w.mini.Set(serverKey, w.server()) // it has no other type
}

func (w *world) server() string { return fmt.Sprintf("server%d", w.servers.Load()) }

// strike executes the disaster that is due, and keeps the data to which a later one returns.
func (w *world) strike() {
	if len(w.Disasters) == 0 {
		return
	}
	d := w.Disasters[0]
	if w.memory == nil && w.result.Steps >= d.At-d.Back {
		w.memory = remember(w.mini)
	}
	if w.result.Steps < d.At {
		return
	}
	w.Disasters = w.Disasters[1:]
	switch d.Kind {
	case older:
		w.memory.restore(w.mini)
	case emptied, flushed:
		w.mini.FlushAll()
	}
	w.memory = nil
	if d.Kind == flushed {
		_ = w.mini.Set(serverKey, w.server()) // it has no other type
	} else {
		w.startRedis()
		w.mu.Lock()
		// late calls were sent to a server that no longer exists
		w.delayed = slices.DeleteFunc(w.delayed, func(c lateCall) bool { return !strings.HasPrefix(c.what, "sql ") })
		w.mu.Unlock()
	}
	if d.Kind != intact {
		clear(w.seen) // request keys are in Redis alone
	}
	w.result.Calamities[d.Kind]++
	w.dirty.Store(true)
	w.record("REDIS " + calamityNames[d.Kind])
}

// verified reports whether Redis is marked as verified since its start.
func (w *world) verified() bool {
	if !w.Guarded {
		return true
	}
	for _, shard := range w.space.All() {
		if mark := w.hash(shard.Guard()); mark["run_id"] != w.server() || mark["rebuilding"] != "" {
			return false
		}
	}
	return true
}

// memory is all data of Redis at one instant, as the commands that restore it.
type memory [][]string

func remember(mini *miniredis.Miniredis) memory {
	all := memory{}
	for _, key := range mini.Keys() {
		var err error
		switch kind := mini.Type(key); kind {
		case "string":
			var text string
			text, err = mini.Get(key)
			all = append(all, []string{"SET", key, text})
		case "list":
			var texts []string
			texts, err = mini.List(key)
			all = append(all, append([]string{"RPUSH", key}, texts...))
		case "set":
			var members []string
			members, err = mini.SMembers(key)
			all = append(all, append([]string{"SADD", key}, members...))
		case "stream":
			var commands [][]string
			commands, err = rememberStream(mini, key)
			all = append(all, commands...)
		case "hash":
			var names []string
			names, err = mini.HKeys(key)
			for _, n := range names {
				all = append(all, []string{"HSET", key, n, mini.HGet(key, n)})
			}
		case "zset":
			var scores map[string]float64
			scores, err = mini.SortedSet(key)
			for member, score := range scores {
				all = append(all, []string{"ZADD", key, strconv.FormatFloat(score, 'g', -1, 64), member})
			}
		default:
			err = fmt.Errorf("a key of type %q", kind)
		}
		if err != nil {
			panic(fmt.Sprintf("sim: %s cannot be remembered: %v", key, err))
		}
		if ttl := mini.TTL(key); ttl > 0 {
			all = append(all, []string{"PEXPIRE", key, strconv.FormatInt(ttl.Milliseconds(), 10)})
		}
	}
	return all
}

// restore executes the commands of a memory.
func (m memory) restore(mini *miniredis.Miniredis) {
	mini.FlushAll()
	c := connect(mini)
	defer c.Close()
	for _, args := range m {
		words := make([]any, len(args))
		for i, a := range args {
			words[i] = a
		}
		if err := c.Do(context.Background(), words...).Err(); err != nil {
			panic(fmt.Sprintf("sim: %s: %v", strings.Join(args, " "), err))
		}
	}
}
