package client

import "context"

// Queue is the state of the order queue: its counts over all shards, and each shard. Both omit unavailable shards.
type Queue struct {
	QueueCounts
	MaxReady    int64        `json:"max_ready"` // a shard with this many ready orders accepts no further ones
	Shards      []QueueShard `json:"shards"`
	Unavailable []int        `json:"unavailable_shards,omitempty"`
}

// QueueShard is the state of one shard of the order queue.
type QueueShard struct {
	Shard int `json:"shard"`
	QueueCounts
	DrainedPerSecond *float64 `json:"drained_per_second"` // nil if unknown
}

// QueueCounts counts orders by their state.
type QueueCounts struct {
	Ready            int64   `json:"ready"`   // wait for a worker
	Delayed          int64   `json:"delayed"` // wait for their next attempt
	Leased           int64   `json:"leased"`  // are being processed
	Leases           int64   `json:"leases"`  // batches of leased orders
	Dead             int64   `json:"dead"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	// DrainSeconds is the estimated time until all accepted orders are in the database. It is nil if unknown.
	DrainSeconds *float64 `json:"drain_seconds"`
}

// Shard is one shard: where it is stored, whether its data is verified, and what it holds.
type Shard struct {
	Shard      int    `json:"shard"`
	Slot       *int   `json:"slot"`             // of a Redis Cluster; nil without one
	Master     string `json:"master"`           // address of its Redis server; "" if it is not known
	Verified   bool   `json:"verified"`         // otherwise its sales return 503
	Reason     string `json:"reason,omitempty"` // why it is not verified, or why its Redis rejects writes
	Generation int64  `json:"generation"`       // fence of the rebuild that verified the data; 0 if it is not verified
	Sales      *int64 `json:"sales"`            // sales and segments of sales; nil if unknown
	Ready      *int64 `json:"ready"`            // orders; nil if unknown
	Leased     *int64 `json:"leased"`
	Dead       *int64 `json:"dead"`
}

// Shards returns the state of every shard, by number.
func (a *Admin) Shards(ctx context.Context) ([]Shard, error) {
	const path = "/admin/v1/shards"
	list, err := get[struct {
		Shards []Shard `json:"shards"`
	}](ctx, &a.conn, path)
	return items(path, list.Shards, err)
}

// Queue returns the state of the order queue.
func (a *Admin) Queue(ctx context.Context) (Queue, error) {
	return get[Queue](ctx, &a.conn, "/admin/v1/queue")
}
