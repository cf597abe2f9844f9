package rehearsal

import (
	"math/bits"
	"time"
)

// histogram counts durations, to the microsecond below two milliseconds and with three significant digits above, up to
// longest. It is the algorithm of HdrHistogram (http://hdrhistogram.org): 1,024 equal buckets for each power of two.
// The zero value is empty.
type histogram struct {
	counts []int64 // by bucket; grows as needed, to at most 18,000
	total  int64
	most   int64 // microseconds
}

// exactBits: values below 1<<exactBits microseconds have buckets of their own.
const exactBits = 11

// bucketOf returns the bucket of a value, and valueOf the highest value of a bucket.
func bucketOf(value int64) int {
	shift := max(bits.Len64(uint64(value))-exactBits, 0) //nolint:gosec // not negative
	return shift<<(exactBits-1) + int(value>>shift)
}

func valueOf(bucket int) int64 {
	if bucket < 1<<exactBits {
		return int64(bucket)
	}
	shift := bucket>>(exactBits-1) - 1
	low := int64(bucket-shift<<(exactBits-1)) << shift
	return low + 1<<shift - 1
}

// note counts a duration between one microsecond and longest; others are moved to these bounds.
func (h *histogram) note(d time.Duration) {
	value := min(max(d, time.Microsecond), longest).Microseconds()
	bucket := bucketOf(value)
	if bucket >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, bucket+1-len(h.counts))...)
	}
	h.counts[bucket]++
	h.total++
	h.most = max(h.most, value)
}

// quantile returns the duration that a percentage of the counted ones do not exceed, 0 if none was counted.
func (h *histogram) quantile(percent float64) time.Duration {
	rank := max(int64(percent/100*float64(h.total)+0.5), 1)
	for bucket, n := range h.counts {
		if rank -= n; rank <= 0 {
			return time.Duration(min(valueOf(bucket), h.most)) * time.Microsecond
		}
	}
	return 0
}
