package spread

import "slices"

// Allocation is what SQL records of a segment.
type Allocation struct {
	Units   int64 // owned by the segment: left, in an outgoing transfer, or of its orders
	Version int64 // grows by one with every change of Units, and whenever the segment is loaded into Redis
}

// Transfer is a number of units that a segment has set apart for another one. It is identified by sale, From and
// Version: a segment has one outgoing transfer at most, and every later one has a higher version.
type Transfer struct {
	From, To int
	Units    int64 // at least 1
	Version  int64 // of the allocation of From, when the units were set apart
}

// State is a segment in Redis at one instant.
type State struct {
	// Loaded is false for a segment that cannot be read: its server does not answer, it is being rebuilt, or it lost the
	// sale. The other fields are 0 then, as Segments.States returns them.
	Loaded  bool
	Version int64 // of the allocation that is applied
	Units   int64 // allocation that is applied
	Left    int64
	Out     *Transfer // outgoing transfer; nil: none
	Returns int64     // number of the last return of a unit; it grows with each
	Sold    int64     // orders ever accepted
}

// provesSoldOut reports whether two successive readings of all segments prove that, at the instant between them, no
// segment held a unit and none was in transfer. allocations are those of SQL, read in one statement at any time, also
// long before.
//
// Between the two readings units can return to a segment in two ways only, and both are visible: a newer allocation
// raises Version, a returned unit raises Returns. So a segment without units in both readings, with equal numbers, had
// none in between. A unit in transfer is visible too: a segment keeps its outgoing transfer until it applies the
// version of the commit. So if From has no outgoing transfer, every earlier transfer is already part of allocations,
// and To has applied these.
func provesSoldOut(allocations []Allocation, first, second []State) bool {
	if len(first) != len(allocations) || len(second) != len(allocations) {
		return false
	}
	for i, a := range allocations {
		for _, s := range [][]State{first, second} {
			if !s[i].Loaded || s[i].Left > 0 || s[i].Out != nil || s[i].Version != a.Version {
				return false
			}
		}
		if first[i].Returns != second[i].Returns {
			return false
		}
	}
	return true
}

// held returns the units that the readable segments hold, with those of their outgoing transfers, and whether every
// segment is readable. It omits units that a commit has given to a segment if the segment has not applied the commit.
func held(states []State) (units int64, complete bool) {
	for _, s := range states {
		units += s.Left
		if s.Out != nil {
			units += s.Out.Units
		}
	}
	return units, !slices.ContainsFunc(states, func(s State) bool { return !s.Loaded })
}
