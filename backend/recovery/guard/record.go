package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/internal/plural"
)

// record is the hash keyspace.Shard.Guard of one shard. The zero value is that of an empty Redis.
type record struct {
	RunID      string // id of the server with verified data (Identify); "" if none
	Generation int64  // generation of the verified data
	Fence      int64  // fence of the last rebuild or move that began
	Rebuilding bool   // a rebuild or a move is in progress or was interrupted
	Swapped    int64  // fence of the last rebuild that stored the sales and the queue, or of a move that resumed them
	Deployment int64  // id of the deployment that owns the data; 0 if not recorded
	Shards     int64  // number of shards; 0 if not recorded
}

func parseRecord(fields map[string]string) record {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil {
			return 0 // missing or malformed; a verified shard has a valid number
		}
		return n
	}
	deployment := number("deployment")
	if strconv.FormatInt(deployment, 10) != fields["deployment"] {
		deployment = 0 // not in canonical form, which scripts do not accept because they compare the text
	}
	return record{
		RunID: fields["run_id"], Generation: number("generation"), Fence: number("fence"),
		Rebuilding: fields["rebuilding"] != "", Swapped: number("swapped"),
		Deployment: deployment, Shards: number("shards"),
	}
}

func readRecord(ctx context.Context, c redis.Cmdable, shard keyspace.Shard) (record, error) {
	fields, err := c.HGetAll(ctx, shard.Guard()).Result()
	if err != nil {
		return record{}, err
	}
	return parseRecord(fields), nil
}

// Identify returns the id of the server that c is connected to. Servers with different data have different ids; see
// SameData.
type Identify func(ctx context.Context, c redis.Cmdable) (string, error)

// RunID returns the run_id of a Redis server, which the server chooses at random when it starts. A replica or a
// promoted server may have the data of the server that it follows or has followed. For these, a dot and the replication
// id of that server (master_replid2 after the promotion) are appended.
func RunID(ctx context.Context, c redis.Cmdable) (string, error) {
	var info, replication *redis.InfoCmd
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		info, replication = p.InfoMap(ctx, "server"), p.InfoMap(ctx, "replication")
		return nil
	}); err != nil {
		return "", err
	}
	id := info.Item("Server", "run_id")
	if id == "" {
		return "", errors.New("INFO server has no run_id, which identifies the data; connect to Redis without a proxy")
	}
	followed := replication.Item("Replication", "master_replid2")
	if replication.Item("Replication", "role") == "slave" {
		followed = replication.Item("Replication", "master_replid") // its master_replid2 when it is promoted
	}
	if strings.Trim(followed, "0") != "" {
		id += "." + followed
	}
	return id, nil
}

// SameData reports whether a server has kept its own data between two readings of its id (RunID): then is the earlier
// id, now the later one. It returns false if the server has restarted, or has followed another server in between and
// may have the data of that one. The part after the dot may be missing in now, because a server without replicas clears
// its master_replid2 (repl-backlog-ttl).
func SameData(then, now string) bool {
	run, _, _ := strings.Cut(then, ".")
	return now == then || now == run
}

// FixedID returns an Identify for the embedded Redis, which has no run_id and is empty whenever the process starts.
func FixedID(id string) Identify {
	return func(context.Context, redis.Cmdable) (string, error) { return id, nil }
}

// observation is the id of a server and the record of a shard on it at one time.
type observation struct {
	runID string
	record
}

func (g *Guard) observe(ctx context.Context, c redis.Cmdable) (observation, error) {
	id, err := g.identify(ctx, c)
	if err != nil {
		return observation{}, err
	}
	r, err := readRecord(ctx, c, g.shard)
	return observation{runID: id, record: r}, err
}

// verified returns the generation if the shard was verified on this server by this deployment, in a generation not
// older than least. Otherwise it returns a reason.
func (o observation) verified(least int64, owner Owner) (generation int64, reason string) {
	if err := o.check(owner); err != nil {
		return 0, err.Error()
	}
	switch {
	case o.Rebuilding:
		return 0, "a rebuild or a move is in progress"
	case o.record == record{}:
		return 0, "Redis is new or was emptied"
	case !SameData(o.RunID, o.runID):
		return 0, "Redis has restarted, is another server, or was a replica of one"
	case o.Generation < least:
		return 0, fmt.Sprintf("the data is of generation %d, and generation %d exists", o.Generation, least)
	}
	return o.Generation, ""
}

// ShardsError reports that Redis holds its orders in another number of shards than this process is configured for.
type ShardsError struct {
	Redis   int64
	Process int
}

func (e *ShardsError) Error() string {
	return fmt.Sprintf("Redis holds its orders in %s, and this process is configured for %d: set --shards %d",
		plural.Count(e.Redis, "shard"), e.Process, e.Redis)
}

// DeploymentError reports that Redis holds the data of another deployment than the database. Redis is 0 if its data has
// no valid id of a deployment.
type DeploymentError struct{ Redis, Database int64 }

func (e *DeploymentError) Error() string {
	of := fmt.Sprintf("the data of deployment %x", e.Redis)
	if e.Redis == 0 {
		of = "data without the id of a deployment"
	}
	return fmt.Sprintf("Redis holds %s, and the database is that of deployment %x: "+
		"name the Redis and the database of one deployment; if its database is lost and this one replaces it, "+
		"run sluice sale rebuild --all", of, e.Database)
}

// Owner identifies the deployment that the data in Redis belongs to. Deployment 0 is not known, and not compared.
type Owner struct {
	Deployment int64
	Shards     int
}

// check returns a *ShardsError or a *DeploymentError if the data has another owner or no recorded one. An empty Redis
// belongs to every deployment.
func (r record) check(owner Owner) error {
	switch {
	case r.Shards != 0 && r.Shards != int64(owner.Shards):
		return &ShardsError{Redis: r.Shards, Process: owner.Shards}
	case owner.Deployment != 0 && r.Deployment != owner.Deployment && r != record{}:
		return &DeploymentError{Redis: r.Deployment, Database: owner.Deployment}
	}
	return nil
}

// NewestFence returns the highest fence or generation of a shard, or 0. An error wraps sale.ErrUnavailable.
func NewestFence(ctx context.Context, c redis.Cmdable, shard keyspace.Shard) (int64, error) {
	r, err := readRecord(ctx, c, shard)
	if err != nil {
		return 0, sale.Unavailable(err)
	}
	return max(r.Fence, r.Generation, r.Swapped), nil
}

// CheckOwner returns a *ShardsError or a *DeploymentError if the data of a shard has another owner or no recorded one.
// It returns nil for an empty Redis. Other errors wrap sale.ErrUnavailable.
func CheckOwner(ctx context.Context, c redis.Cmdable, shard keyspace.Shard, owner Owner) error {
	r, err := readRecord(ctx, c, shard)
	if err != nil {
		return sale.Unavailable(err)
	}
	return r.check(owner)
}
