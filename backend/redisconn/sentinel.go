package redisconn

import (
	"context"
	"errors"
	"net/url"

	"github.com/redis/go-redis/v9"
)

func behindSentinel(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Query().Has("master_name")
}

// openSentinel makes a client of a master that Sentinels know by name; it follows the master when that changes. The URL is that of one Sentinel, with the user and password
// that Sentinels ask for, and says the rest in its query:
//
//	redis://[user:password@]sentinel:26379/db?master_name=shop&addr=sentinel2:26379&addr=sentinel3:26379&username=U&password=P
//
// username and password are those of Redis itself.
func openSentinel(raw string, options []Option) (*redis.Client, error) {
	f, err := redis.ParseFailoverURL(raw)
	if err != nil || f.MasterName == "" {
		return nil, errors.New("bad Redis URL: want redis://sentinel:26379/db?master_name=NAME&addr=another-sentinel:26379")
	}
	if f.ReplicaOnly || f.RouteByLatency || f.RouteRandomly {
		return nil, errors.New("bad Redis URL: only the master can be used, not its replicas")
	}
	var o redis.Options
	limit(&o, options)
	f.DialTimeout, f.DialerRetries, f.ReadTimeout, f.WriteTimeout, f.PoolTimeout = o.DialTimeout, o.DialerRetries, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout
	f.ContextTimeoutEnabled, f.MaxRetries = o.ContextTimeoutEnabled, o.MaxRetries
	f.PoolSize = o.PoolSize
	if o.OnConnect != nil {
		f.OnConnect = ofRedis(o.OnConnect)
	}
	return redis.NewFailoverClient(f), nil
}

// ofRedis asks about connections to Redis alone: the library asks about those to Sentinels, too.
func ofRedis(check func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		role, err := cn.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		if len(role) > 0 && role[0] == "sentinel" {
			return nil
		}
		return check(ctx, cn)
	}
}
