package spread

import (
	"math"

	"sluice/backend/sale"
)

// Part names what one shard holds of a sale: the whole sale, or one of its segments. As a selection of rows, the zero
// values of Segment and Spread select all orders of the sale. A Part is comparable.
type Part struct {
	SaleID  string
	Segment int // from 0
	Spread  int // number of segments; 0: the sale lives in one shard
}

// PartOf returns the part of a sale with k segments that holds this segment. If k is below 2, it returns the whole
// sale.
func PartOf(saleID string, segment, k int) Part {
	if k < 2 {
		return Part{SaleID: saleID}
	}
	return Part{SaleID: saleID, Segment: segment, Spread: k}
}

// PartsOf returns the parts of a sale, by segment.
func PartsOf(s sale.Sale) []Part {
	parts := make([]Part, max(s.Spread, 1))
	for i := range parts {
		parts[i] = PartOf(s.ID, i, s.Spread)
	}
	return parts
}

// HomePart returns the part of a sale that decides the purchases of a buyer and that holds all orders of the buyer.
func HomePart(saleID, buyer string, k int) Part { return PartOf(saleID, Home(buyer, k), k) }

// serialsPerSegment separates the serials of the segments of a sale; lua/redis/include/segment.lua has the same number.
const serialsPerSegment = 1 << 40

// Serials returns the range of the serials of the orders of a part, both ends included.
func (p Part) Serials() (first, last int64) {
	if p.Spread < 2 {
		return 0, math.MaxInt64
	}
	return p.Base() + 1, p.Base() + serialsPerSegment - 1
}

// Base returns the number below the first serial of a part. The serial of an order is Base plus its number within the
// part, from 1.
func (p Part) Base() int64 {
	if p.Spread < 2 {
		return 0
	}
	return int64(p.Segment) * serialsPerSegment
}
