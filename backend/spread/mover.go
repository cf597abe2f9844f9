package spread

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Sale names a sale with several segments.
type Sale struct {
	ID     string
	Spread int // number of segments
}

// Segment returns the part of the sale that is this segment.
func (s Sale) Segment(i int) Part { return PartOf(s.ID, i, s.Spread) }

// Segments are the segments of sales in Redis. Every call concerns one shard, except States. All calls may be repeated.
type Segments interface {
	// States reads all segments of a sale, each at an instant of its own. A segment that cannot be read, or not before ctx
	// ends, is not Loaded. It returns an error if ctx ends before any segment was read.
	States(ctx context.Context, of Sale) ([]State, error)
	// SetApart takes up to units of those left in a segment off sale and records them as its outgoing transfer. If the
	// segment has an outgoing transfer, SetApart returns that one. It returns nil if no unit is left.
	SetApart(ctx context.Context, of Sale, wanted Move) (*Transfer, error)
	// Apply applies an allocation to a segment, unless the segment has the same or a newer one. It ends an outgoing
	// transfer by putting its units back on sale. If the transfer is committed, the new allocation is lower by the same
	// number, so these units are not sold there.
	Apply(ctx context.Context, of Sale, segment int, to Allocation) error
}

// Ledger holds the allocations in SQL.
type Ledger interface {
	// Allocations returns the allocations of a sale by segment, at one instant.
	Allocations(ctx context.Context, saleID string) ([]Allocation, error)
	// Commit moves the units of a transfer from the allocation of From to that of To, if the allocation of From still has
	// the version of the transfer. Otherwise it changes nothing: the transfer is committed already, or it never will be.
	// It returns the allocations after that, as of the same instant.
	Commit(ctx context.Context, saleID string, t Transfer) ([]Allocation, error)
}

// Mover moves units between the segments of sales. Any number of processes may move units of the same sale
// concurrently, and any of them may stop at any point: the next Settle of another process completes or reverts its
// move. A Mover is safe for concurrent use.
type Mover struct {
	segments Segments
	ledger   Ledger
	known    sync.Map // []Allocation by id of the sale, as last read
	seen     sync.Map // []State by id of the sale, as last read; SQL is read after them to compare both
}

// NewMover returns a Mover over the two stores.
func NewMover(segments Segments, ledger Ledger) *Mover {
	return &Mover{segments: segments, ledger: ledger}
}

// Move sets units apart in one segment, commits the transfer in SQL, and applies it to both segments. It returns the
// move that it made: of fewer units if From had fewer left, and the zero Move if it had none. If From has an outgoing
// transfer, Move completes that one instead. After an error the move may be complete, or the next Settle completes or
// reverts it.
func (m *Mover) Move(ctx context.Context, of Sale, wanted Move) (made Move, err error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	t, err := m.segments.SetApart(bounded, of, wanted)
	cancel()
	if err != nil {
		return Move{}, fmt.Errorf("spread: set apart: %w", err)
	}
	if t == nil {
		return Move{}, nil
	}
	return Move{t.From, t.To, t.Units}, m.complete(ctx, of, *t, true)
}

// complete commits a transfer and applies the allocations: To first, so that buyers get the units as early as possible.
// If To cannot be read, it is skipped; a later Settle applies its allocation.
func (m *Mover) complete(ctx context.Context, of Sale, t Transfer, readable bool) error {
	seen, _ := m.seen.Load(of.ID)
	allocations, err := m.ledger.Commit(ctx, of.ID, t)
	if err != nil {
		return fmt.Errorf("spread: commit: %w", err)
	}
	m.known.Store(of.ID, allocations)
	if max(t.From, t.To) >= len(allocations) {
		return fmt.Errorf("spread: transfer from segment %d to %d of a sale with %d", t.From, t.To, len(allocations))
	}
	if states, ok := seen.([]State); ok && Newer(states, allocations) {
		return older(of)
	}
	var failures []error
	for _, i := range []int{t.To, t.From} {
		if i == t.From || readable {
			failures = append(failures, m.apply(ctx, of, i, allocations[i]))
		}
	}
	return errors.Join(failures...)
}

// ErrOlder reports that SQL has lost the last moves of units: the database was restored from a backup, or a standby
// without the last commits has replaced it. Its allocations must not be applied, because units that were moved and sold
// would be on sale again. A rebuild corrects them.
var ErrOlder = errors.New("the database has an older division of the stock than Redis: run sluice sale rebuild --all")

func older(of Sale) error { return fmt.Errorf("spread: sale %s: %w", of.ID, ErrOlder) }

// apply applies an allocation to a segment. A server that hangs delays the other calls by callTimeout.
func (m *Mover) apply(ctx context.Context, of Sale, segment int, to Allocation) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := m.segments.Apply(ctx, of, segment, to); err != nil {
		return fmt.Errorf("spread: apply to segment %d: %w", segment, err)
	}
	return nil
}

// Settle completes the transfers that other processes left unfinished, and applies the allocations in SQL to all
// segments that have an older one. It returns the states that it read first, or ErrOlder. Errors of single segments are
// joined.
func (m *Mover) Settle(ctx context.Context, of Sale) ([]State, error) {
	states, err := m.states(ctx, of)
	if err != nil {
		return nil, err
	}
	return m.settle(ctx, of, states)
}

// settle is Settle after the states were read.
func (m *Mover) settle(ctx context.Context, of Sale, states []State) ([]State, error) {
	allocations, err := m.allocations(ctx, of)
	if err == nil && Newer(states, allocations) {
		err = older(of)
	}
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, s := range states {
		if s.Out != nil {
			readable := s.Out.To >= 0 && s.Out.To < len(states) && states[s.Out.To].Loaded
			failures = append(failures, m.complete(ctx, of, *s.Out, readable))
		}
	}
	for i, s := range states {
		if i < len(allocations) && s.Loaded && s.Version < allocations[i].Version {
			failures = append(failures, m.apply(ctx, of, i, allocations[i]))
		}
	}
	return states, errors.Join(failures...)
}

// Settled settles a sale, and reports whether there was nothing to settle: all segments could be read, none had an
// outgoing transfer, and all had the allocations in SQL. While a segment cannot be read, SQL is read only if the others
// differ from the allocations that were read last.
func (m *Mover) Settled(ctx context.Context, of Sale) (bool, error) {
	states, err := m.states(ctx, of)
	if err != nil {
		return false, err
	}
	_, complete := held(states)
	if !complete && m.current(of, states) {
		return false, nil
	}
	_, err = m.settle(ctx, of, states)
	return err == nil && complete && m.current(of, states), err
}

// SoldOut reports whether the sale had no unit left and none in transfer at an instant during the call. If the two
// stores differ, SoldOut returns false: the next Settle makes them equal. It returns an error if not all segments can
// be read, because one of them may hold units. SQL is read only if the allocations have changed since the last call.
func (m *Mover) SoldOut(ctx context.Context, of Sale) (bool, error) {
	var readings [2][]State
	for i := range readings {
		var err error
		if readings[i], err = m.states(ctx, of); err != nil {
			return false, err
		}
		if units, complete := held(readings[i]); units > 0 {
			return false, nil
		} else if !complete {
			return false, fmt.Errorf("spread: sale %s: %w", of.ID, ErrUnreadable)
		}
	}
	if known, ok := m.known.Load(of.ID); ok && provesSoldOut(known.([]Allocation), readings[0], readings[1]) {
		return true, nil
	}
	allocations, err := m.allocations(ctx, of)
	return err == nil && provesSoldOut(allocations, readings[0], readings[1]), err
}

// callTimeout bounds a reading of all segments, and a change of one segment: a server that hangs must not delay the
// refill of the other segments beyond the timeout of a purchase.
const callTimeout = 200 * time.Millisecond

func (m *Mover) states(ctx context.Context, of Sale) ([]State, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	states, err := m.segments.States(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("spread: states: %w", err)
	}
	m.seen.Store(of.ID, states)
	return states, nil
}

// current reports whether the segments have no outgoing transfer and the allocations that were last read from SQL.
func (m *Mover) current(of Sale, states []State) bool {
	known, ok := m.known.Load(of.ID)
	if !ok {
		return false
	}
	allocations := known.([]Allocation)
	for i, s := range states {
		if s.Loaded && (s.Out != nil || i >= len(allocations) || s.Version != allocations[i].Version) {
			return false
		}
	}
	return true
}

// allocations reads the allocations in SQL and keeps them for SoldOut.
func (m *Mover) allocations(ctx context.Context, of Sale) ([]Allocation, error) {
	all, err := m.ledger.Allocations(ctx, of.ID)
	if err != nil {
		return nil, fmt.Errorf("spread: allocations: %w", err)
	}
	m.known.Store(of.ID, all)
	return all, nil
}

// ErrUnreadable reports that a segment of a sale cannot be read: its server does not answer or it is being rebuilt.
var ErrUnreadable = errors.New("a segment cannot be read")
