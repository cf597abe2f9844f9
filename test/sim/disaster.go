package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// calamity is the state in which Redis starts again. All connections are cut.
type calamity int

// The calamities. With all but the first, what it had acknowledged may be gone.
const (
	intact calamity = iota
	older           // it has the data of a while ago
	emptied
	calamities
)

var calamityNames = [calamities]string{"with all it had", "with older data", "empty"}

// disaster is a calamity at a step; Back is how many steps old the older data is.
type disaster struct {
	At   int
	Kind calamity
	Back int
}

// serverKey names the Redis that answers, as the run_id in INFO does; the embedded one has none.
const serverKey = "sim:server"

// identify is epoch.Identify.
func identify(ctx context.Context, c redis.Cmdable) (string, error) {
	return c.Get(ctx, serverKey).Result()
}

// startRedis makes the embedded Redis another server.
func (w *world) startRedis() {
	w.servers.Add(1)
	_ = w.mini.Set(serverKey, w.server()) // it has no other type
}

func (w *world) server() string { return fmt.Sprintf("server%d", w.servers.Load()) }

// strike lets the disaster that is due happen, and keeps the data that one to come will go back to.
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
	case emptied:
		w.mini.FlushAll()
	}
	w.memory = nil
	w.startRedis()
	w.mu.Lock()
	// they were on their way to a server that is gone
	w.delayed = slices.DeleteFunc(w.delayed, func(c lateCall) bool { return !strings.HasPrefix(c.what, "sql ") })
	w.mu.Unlock()
	if d.Kind != intact {
		clear(w.seen) // request keys live in Redis alone
	}
	w.result.Calamities[d.Kind]++
	w.dirty.Store(true)
	w.tell("REDIS STARTS AGAIN " + calamityNames[d.Kind])
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

// memory is all that Redis held at one instant.
type memory []kept

type kept struct {
	key, kind, text string
	list            []string
	fields          map[string]string
	scores          map[string]float64
	ttl             time.Duration
	stream          [][]string // the commands that make it
}

func remember(mini *miniredis.Miniredis) memory {
	all := memory{}
	for _, key := range mini.Keys() {
		k := kept{key: key, kind: mini.Type(key), ttl: mini.TTL(key)}
		var err error
		switch k.kind {
		case "string":
			k.text, err = mini.Get(key)
		case "list":
			k.list, err = mini.List(key)
			k.list = slices.Clone(k.list)
		case "set":
			k.list, err = mini.SMembers(key)
		case "stream":
			k.stream, err = rememberStream(mini, key)
		case "hash":
			k.fields = map[string]string{}
			var names []string
			names, err = mini.HKeys(key)
			for _, n := range names {
				k.fields[n] = mini.HGet(key, n)
			}
		case "zset":
			k.scores, err = mini.SortedSet(key)
			k.scores = maps.Clone(k.scores)
		default:
			err = fmt.Errorf("a key of type %q", k.kind)
		}
		if err != nil {
			panic(fmt.Sprintf("sim: %s cannot be remembered: %v", key, err))
		}
		all = append(all, k)
	}
	return all
}

func (m memory) restore(mini *miniredis.Miniredis) {
	mini.FlushAll()
	for _, k := range m {
		var err error
		switch k.kind {
		case "string":
			err = mini.Set(k.key, k.text)
		case "list":
			_, err = mini.Push(k.key, k.list...)
		case "set":
			_, err = mini.SetAdd(k.key, k.list...)
		case "stream":
			err = command(mini, k.stream)
		case "hash":
			for name, value := range k.fields {
				mini.HSet(k.key, name, value)
			}
		case "zset":
			for member, score := range k.scores {
				if _, err = mini.ZAdd(k.key, score, member); err != nil {
					break
				}
			}
		}
		if err != nil {
			panic(fmt.Sprintf("sim: %s cannot be put back: %v", k.key, err))
		}
		if k.ttl > 0 {
			mini.SetTTL(k.key, k.ttl)
		}
	}
}
