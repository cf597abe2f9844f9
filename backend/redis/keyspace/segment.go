package keyspace

import "sluice/backend/sale"

// ShardOfSegment returns the shard of a segment of a sale. Segment 0 is in the shard that ShardOf returns, and each
// further segment is in the next shard. If a sale has at most as many segments as there are shards, no shard has two of
// them.
func (s Space) ShardOfSegment(saleID string, segment int) Shard {
	return Shard((int(s.ShardOf(saleID)) + segment) % max(s.Shards, 1))
}

// ShardOfOrder returns the shard that allocated the id of an order: the sequence number modulo the number of shards.
func (s Space) ShardOfOrder(id sale.OrderID) Shard {
	return Shard(id.Sequence() % uint32(max(s.Shards, 1)))
}

// SegmentIn returns the segment of a sale with k segments that a shard holds, and whether it holds one. k below 2 is a
// sale that lives in one shard.
func (s Space) SegmentIn(saleID string, k int, shard Shard) (segment int, ok bool) {
	n := max(s.Shards, 1)
	segment = (int(shard) - int(s.ShardOf(saleID)) + n) % n
	return segment, segment < max(k, 1)
}
