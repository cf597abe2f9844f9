package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// queryTimeout bounds a query to the Sentinels. They answer immediately, so one that has not answered by then is down.
const queryTimeout = 250 * time.Millisecond

// sentinels queries the Sentinels of one master.
type sentinels struct {
	name       string
	configured []string      // addresses in the URL
	options    redis.Options // of a connection to a Sentinel
	timeout    time.Duration // of a query to all Sentinels
}

func (s *sentinels) limit() time.Duration { return s.timeout }

func (*sentinels) forget() {} // every query reads the Sentinels

// parseSentinels parses the URL of a Sentinel into the Sentinels and the options of the master without its address.
func parseSentinels(u *url.URL) (*sentinels, *redis.Options, error) {
	bad := errors.New("bad Redis URL: want redis://sentinel:26379/db?master_name=NAME&addr=another-sentinel:26379")
	query := u.Query()
	for _, option := range []string{"replica_only", "route_by_latency", "route_randomly"} {
		if query.Has(option) {
			return nil, nil, fmt.Errorf("bad Redis URL: %s reads from replicas, which is not supported: remove it", option)
		}
	}
	s := &sentinels{name: query.Get("master_name"), timeout: queryTimeout}
	port := cmp.Or(u.Port(), "6379") // default port of a Redis URL
	s.configured = append([]string{net.JoinHostPort(u.Hostname(), port)}, query["addr"]...)
	if !areAddresses(s.configured) {
		return nil, nil, bad
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
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server has another one
	}
	password, _ := u.User.Password()
	s.options = redis.Options{
		Username: u.User.Username(), Password: password, TLSConfig: o.TLSConfig, Protocol: o.Protocol, DisableIdentity: true,
		DialerRetries: 1, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: 1,
		MaintNotificationsConfig: withoutMaintenance,
	}
	return s, o, nil
}

// query queries all Sentinels concurrently for the master. It returns when most of the configured ones have answered,
// or at the timeout with the answers so far, so a Sentinel that is down does not delay it. Of different answers, the
// one with the latest failover wins. The Sentinel that leads a failover reports the new master as soon as that is
// promoted, before it notifies subscribers.
func (s *sentinels) query(known []string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout) // shared by all waiting callers
	defer cancel()
	answers, err := queryMost(distinct(s.configured, known), len(s.configured)/2+1, func(addr string) (answer, error) {
		return s.queryOne(ctx, addr)
	})
	if err != nil {
		return answer{}, fmt.Errorf("no Sentinel returned the address of master %q: %w", s.name, err)
	}
	best := slices.MaxFunc(answers, func(a, b answer) int { return cmp.Compare(a.epoch, b.epoch) })
	var peers []string
	for _, a := range answers {
		peers = append(peers, a.peers...)
	}
	best.peers = peers
	return best, nil
}

func (s *sentinels) queryOne(ctx context.Context, addr string) (answer, error) {
	o := s.options
	o.Addr = addr
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = s.timeout, s.timeout, s.timeout
	c := redis.NewSentinelClient(&o)
	defer c.Close()
	master, err := c.GetMasterAddrByName(ctx, s.name).Result()
	if err == nil && len(master) != 2 {
		err = errors.New("the Sentinel returned no address")
	}
	if err != nil {
		return answer{}, err
	}
	a := answer{master: net.JoinHostPort(master[0], master[1])}
	// The rest is optional: an account may be allowed to query the address only.
	if state, err := c.Master(ctx, s.name).Result(); err == nil {
		a.epoch, _ = strconv.ParseInt(state["config-epoch"], 10, 64) // 0 if it is missing
	}
	if others, err := c.Sentinels(ctx, s.name).Result(); err == nil {
		for _, o := range others {
			if o["ip"] != "" && o["port"] != "" {
				a.peers = append(a.peers, net.JoinHostPort(o["ip"], o["port"]))
			}
		}
	}
	return a, nil
}
