package keyspace

// ShardOfSegment returns the shard of a segment of a sale, from 0: that of the sale and those after it. A sale with at
// most as many segments as shards has each in another one.
func (s Space) ShardOfSegment(saleID string, segment int) Shard {
	return Shard((int(s.ShardOf(saleID)) + segment) % max(s.Shards, 1))
}
