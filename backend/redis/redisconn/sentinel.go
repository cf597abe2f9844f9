package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// askTimeout bounds a question to the Sentinels. They do nothing that takes time, so one that has not answered by then is away.
const queryTimeout = 250 * time.Millisecond

// sentinels know the master by its name.
type sentinels struct {
	name       string
	configured []string      // addresses that the URL gives
	options    redis.Options // of a connection to one of them
	timeout    time.Duration // of a question to all of them: askTimeout
}

func behindSentinel(u *url.URL) bool { return u.Query().Has("master_name") }

// parseSentinels splits a URL into the Sentinels and the options for the master: what is left is the URL of a Redis like any other, without its address.
func parseSentinels(u *url.URL) (*sentinels, *redis.Options, error) {
	bad := errors.New("bad Redis URL: want redis://sentinel:26379/db?master_name=NAME&addr=another-sentinel:26379")
	query := u.Query()
	for _, option := range []string{"replica_only", "route_by_latency", "route_randomly"} {
		if query.Has(option) {
			return nil, nil, errors.New("bad Redis URL: only the master can be used, not its replicas")
		}
	}
	s := &sentinels{name: query.Get("master_name"), timeout: queryTimeout}
	port := u.Port()
	if port == "" {
		port = "6379" // as in any Redis URL
	}
	s.configured = append([]string{net.JoinHostPort(u.Hostname(), port)}, query["addr"]...)
	for _, addr := range s.configured {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return nil, nil, bad
		}
	}
	rest := *u
	rest.User = nil
	if query.Has("username") || query.Has("password") {
		rest.User = url.UserPassword(query.Get("username"), query.Get("password"))
	}
	for _, name := range []string{"master_name", "addr", "username", "password"} {
		query.Del(name)
	}
	rest.RawQuery = query.Encode()
	o, err := redis.ParseURL(rest.String())
	if err != nil || s.name == "" {
		return nil, nil, bad
	}
	password, _ := u.User.Password()
	s.options = redis.Options{
		Username: u.User.Username(), Password: password, TLSConfig: o.TLSConfig, Protocol: o.Protocol, DisableIdentity: true,
		DialerRetries: 1, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	return s, o, nil
}

// word is what one Sentinel says.
type answer struct {
	master string   // address
	epoch  int64    // of the failover that made it the master; 0: it does not say
	peers  []string // addresses of the other Sentinels that it knows
	err    error
}

// ask asks all Sentinels at once who the master is, and returns when most of those that were named have answered, or with what there is when the time is over: one that is away
// keeps nobody waiting. Of different answers the one of the latest failover counts. The Sentinel that leads a failover names the new master as soon as that says so itself, a while
// before it tells whoever has subscribed.
func (s *sentinels) query(ctx context.Context, known []string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	addrs := slices.Concat(s.configured, known)
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	words := make(chan answer, len(addrs))
	for _, addr := range addrs {
		go func() { words <- s.queryOne(ctx, addr) }()
	}
	var best answer
	var failed []error
	heard := 0
	for range addrs {
		w := <-words // which ends with ctx
		if w.err != nil {
			failed = append(failed, w.err)
			continue
		}
		others := append(best.peers, w.peers...)
		if heard == 0 || w.epoch > best.epoch {
			best = w
		}
		best.peers = others
		if heard++; heard > len(s.configured)/2 {
			break
		}
	}
	if heard == 0 {
		return answer{}, fmt.Errorf("no Sentinel tells who the master %q is: %w", s.name, errors.Join(failed...))
	}
	return best, nil
}

func (s *sentinels) queryOne(ctx context.Context, addr string) answer {
	o := s.options
	o.Addr = addr
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = s.timeout, s.timeout, s.timeout
	c := redis.NewSentinelClient(&o)
	defer c.Close()
	master, err := c.GetMasterAddrByName(ctx, s.name).Result()
	if err == nil && len(master) != 2 {
		err = errors.New("it names no address")
	}
	if err != nil {
		return answer{err: fmt.Errorf("%s: %w", addr, err)}
	}
	w := answer{master: net.JoinHostPort(master[0], master[1])}
	// What follows is better known, but an account may be allowed to ask for the address alone.
	if state, err := c.Master(ctx, s.name).Result(); err == nil {
		w.epoch, _ = strconv.ParseInt(state["config-epoch"], 10, 64) // 0: it does not say
	}
	if others, err := c.Sentinels(ctx, s.name).Result(); err == nil {
		for _, o := range others {
			if o["ip"] != "" && o["port"] != "" {
				w.peers = append(w.peers, net.JoinHostPort(o["ip"], o["port"]))
			}
		}
	}
	return w
}
