package spread

import "slices"

// Recover returns the allocations of a sale after its database was restored from a backup, given those in SQL and the
// segments in Redis, which have applied newer ones. It returns inSQL unless Newer.
//
// For each segment, Recover uses the newer allocation. The result adds up to the stock: missing units are divided over
// all segments, and surplus units, for example those of a restock that SQL has lost, are taken from segments, first
// from those with units that no order holds. The versions are higher than those of SQL and of Redis, so no transfer
// that began before can be committed.
func Recover(stock int64, inSQL []Allocation, applied []State) []Allocation {
	if !Newer(applied, inSQL) {
		return inSQL
	}
	all, free, missing := slices.Clone(inSQL), make([]int64, len(inSQL)), stock
	for i, s := range applied {
		if s.Loaded && s.newer(all[i]) {
			all[i] = Allocation{s.Units, s.Version}
		}
		if s.Loaded {
			free[i] = all[i].Units - s.held()
		}
		missing -= all[i].Units
	}
	for i, more := range Divide(max(missing, 0), len(all), 0) {
		all[i].Units += more
		all[i].Version++
	}
	take := func(from func(i int) int64) {
		for i := range all {
			n := min(max(-missing, 0), max(from(i), 0))
			all[i].Units -= n
			free[i] -= n
			missing += n
		}
	}
	// first, units in outgoing transfers, which cannot be sold now
	take(func(i int) int64 {
		if !applied[i].Loaded || applied[i].Out == nil {
			return 0
		}
		return min(applied[i].Out.Units, free[i])
	})
	// then, other units that no order holds
	take(func(i int) int64 { return free[i] })
	// then, units of segments that cannot be read: their orders are unknown
	take(func(i int) int64 {
		if applied[i].Loaded {
			return 0
		}
		return all[i].Units
	})
	// last, units of orders: SQL has lost a restock, and its units are sold
	take(func(i int) int64 { return all[i].Units })
	return all
}

// held returns the units of the orders of a segment.
func (s State) held() int64 {
	held := s.Units - s.Left
	if s.Out != nil {
		held -= s.Out.Units
	}
	return held
}

// Newer reports whether SQL has lost the allocation of a segment that Redis has applied. applied was read before inSQL.
func Newer(applied []State, inSQL []Allocation) bool {
	for i, s := range applied {
		if i < len(inSQL) && s.Loaded && s.newer(inSQL[i]) {
			return true
		}
	}
	return false
}

// newer reports whether the allocation in SQL is older than that of the segment, or is another one with the same
// version, because a transfer was committed in a restored database.
func (s State) newer(inSQL Allocation) bool {
	return s.Version > inSQL.Version || s.Version == inSQL.Version && s.Units != inSQL.Units
}
