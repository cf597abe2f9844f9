package spread

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// slow is the model, for concurrent use and with a round trip of 5 ms.
type slow struct {
	mu    sync.Mutex
	model *model
	reads int // of SQL
	views int // of all segments
	hangs int // the segment that does not respond; 0: none
}

func (s *slow) lock() func() {
	time.Sleep(5 * time.Millisecond) //nolint:forbidigo // of the fake clock: the round trip
	s.mu.Lock()
	return s.mu.Unlock
}

func (s *slow) States(ctx context.Context, of spread.Sale) ([]spread.State, error) {
	defer s.lock()()
	s.views++
	states, err := s.model.States(ctx, of)
	if s.hangs > 0 {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		states[s.hangs] = spread.State{}
	}
	return states, err
}

func (s *slow) SetApart(ctx context.Context, of spread.Sale, m spread.Move) (*spread.Transfer, error) {
	defer s.lock()()
	return s.model.SetApart(ctx, of, m)
}

func (s *slow) Apply(ctx context.Context, of spread.Sale, segment int, to spread.Allocation) error {
	defer s.lock()()
	if s.hangs > 0 && segment == s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	}
	return s.model.Apply(ctx, of, segment, to)
}

func (s *slow) Allocations(ctx context.Context, id string) ([]spread.Allocation, error) {
	defer s.lock()()
	s.reads++
	return s.model.Allocations(ctx, id)
}

func (s *slow) Commit(ctx context.Context, id string, t spread.Transfer) ([]spread.Allocation, error) {
	defer s.lock()()
	return s.model.Commit(ctx, id, t)
}

func (s *slow) buy(segment int, buyer string) verdict {
	defer s.lock()()
	v, err := s.model.Buy(segment, buyer, 1)
	if err != nil {
		return verdict(err.Error())
	}
	return v
}

func (s *slow) rebuild(t *testing.T, segment int) {
	t.Helper()
	defer s.lock()()
	fence, _ := s.model.Begin(segment)
	claimed, _ := s.model.Claim(segment)
	if err := s.model.Load(segment, fence, claimed); err != nil {
		t.Fatal(err)
	}
}

func newSlow(t *testing.T, k int, stock int64) (*slow, *spread.Mover, spread.Sale) {
	t.Helper()
	s := &slow{model: newModel(k, stock)}
	for i := range k {
		s.rebuild(t, i)
	}
	return s, spread.NewMover(s, s), spread.Sale{ID: saleID, Spread: k}
}

// purchase decides a purchase as a backend does.
func (s *slow) purchase(ctx context.Context, r *spread.Refiller, k int, buyer string) error {
	home := spread.Home(buyer, k)
	for {
		if v := s.buy(home, buyer); v != empty {
			return nil
		}
		if err := r.Await(ctx, home); err != nil {
			return err
		}
	}
}

// soldMeanwhile is the model in which the units of a segment are sold before a move takes them.
type soldMeanwhile struct{ *slow }

func (s soldMeanwhile) SetApart(ctx context.Context, of spread.Sale, m spread.Move) (*spread.Transfer, error) {
	for i := 0; s.buy(m.From, fmt.Sprint("buyer", i)) != empty; i++ {
	}
	return s.slow.SetApart(ctx, of, m)
}

// A move that finds no unit brings none to the purchases that wait.
func TestUnitThatIsSoldMeanwhileDoesNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, of := newSlow(t, 2, 1)
		home := 0
		if s.model.Truth().States[0].Left == 1 {
			home = 1
		}
		refiller := spread.NewRefillers(spread.NewMover(soldMeanwhile{s}, s)).Of(of)
		if err := refiller.Await(t.Context(), home); !errors.Is(err, spread.ErrSoldOut) {
			t.Errorf("%v, want %v", err, spread.ErrSoldOut)
		}
	})
}

// All buyers have the same home. Each gets an answer: the stock is sold to the last unit, and the others get sold out.
// Two processes refill the sale.
func TestRefillersSellTheWholeStock(t *testing.T) {
	for _, k := range []int{2, 8, 40} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const stock, buyers = 200, 250
				s, mover, of := newSlow(t, k, stock)
				refillers := []*spread.Refiller{spread.NewRefillers(mover).Of(of), spread.NewRefillers(mover).Of(of)}
				var all sync.WaitGroup
				var mu sync.Mutex
				results := map[string]int{}
				for i, n := 0, 0; n < buyers; i++ {
					buyer := fmt.Sprintf("buyer%d", i)
					if spread.Home(buyer, k) != 0 {
						continue
					}
					n++
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						err := s.purchase(ctx, refillers[n%2], k, buyer)
						mu.Lock()
						results[fmt.Sprint(err)]++
						mu.Unlock()
					})
				}
				all.Wait()
				if results["<nil>"] != stock || results[spread.ErrSoldOut.Error()] != buyers-stock {
					t.Fatalf("results %v", results)
				}
			})
		})
	}
}

// While a segment cannot be read, an empty sale is not sold out: a purchase waits until its time ends. When the segment
// is back, its units are sold.
func TestAwaitOfAnUnreadableSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mover, of := newSlow(t, 2, 1) // segment 0 has the unit
		r := spread.NewRefillers(mover).Of(of)
		s.model.Lose(0, false)
		wait := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			return r.Await(ctx, 1)
		}
		if err := wait(); !errors.Is(err, sale.ErrUnavailable) || errors.Is(err, spread.ErrSoldOut) {
			t.Fatalf("error %v", err)
		}
		s.rebuild(t, 0)
		if err := wait(); err != nil {
			t.Fatalf("error %v", err)
		}
		if err := r.Await(t.Context(), 2); err == nil {
			t.Fatal("a segment that does not exist")
		}
	})
}

// While a server hangs, a purchase still gets units of other segments.
func TestAwaitBesideASegmentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mover, of := newSlow(t, 3, 1) // segment 0 has the unit
		s.hangs = 2
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := spread.NewRefillers(mover).Of(of).Await(ctx, 1); err != nil {
			t.Fatalf("error %v", err)
		}
	})
}

// A transfer to a server that hangs is committed, and then settled in its source. Neither the transfer nor the server
// blocks the units of the source.
func TestAwaitBesideATransferToASegmentThatHangs(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed %v", committed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, mover, of := newSlow(t, 3, 9)
				s.hangs = 2
				out, err := s.SetApart(t.Context(), of, spread.Move{From: 0, To: 2, Units: 1})
				if err == nil && committed {
					_, err = s.Commit(t.Context(), of.ID, *out)
				}
				for i := 0; err == nil && s.model.segments[1].Left > 0; i++ {
					s.buy(1, fmt.Sprintf("buyer%d", i)) // those with another home are refused
				}
				if err != nil {
					t.Fatal(err)
				}
				r := spread.NewRefillers(mover).Of(of)
				for range 2 { // the first purchase may be too early
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					err = r.Await(ctx, 1)
					cancel()
				}
				if err != nil || s.model.segments[0].Out != nil || s.model.segments[1].Left == 0 {
					t.Fatalf("error %v, segments %+v", err, s.model.segments)
				}
			})
		})
	}
}

// A round without waiting purchases refills a segment before it is empty, and moves no unit while all have enough.
func TestRoundsRefillBeforeASegmentIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mover, of := newSlow(t, 2, 400)
		r := spread.NewRefillers(mover).Of(of)
		for i, bought := 0, 0; bought < 300; i++ {
			buyer := fmt.Sprintf("buyer%d", i)
			if spread.Home(buyer, 2) != 0 {
				continue
			}
			if bought++; s.buy(0, buyer) != accepted {
				t.Fatalf("segment 0 was empty after %d purchases", bought)
			}
			if bought%5 != 0 {
				continue
			}
			before := s.model.segments[1].Units
			if err := r.RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if bought < 100 && s.model.segments[1].Units != before {
				t.Fatalf("units moved after %d purchases of 200", bought)
			}
		}
	})
}

// Once a sale is sold out, purchases cost one statement in SQL per second.
func TestSoldOutSparesSQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mover, of := newSlow(t, 2, 2)
		for i := 0; s.model.Truth().free() > 0; i++ {
			buyer := fmt.Sprintf("buyer%d", i)
			s.buy(spread.Home(buyer, 2), buyer)
		}
		for range 5 {
			if soldOut, err := mover.SoldOut(t.Context(), of); err != nil || !soldOut {
				t.Fatalf("sold out %v, %v", soldOut, err)
			}
		}
		if s.reads != 1 {
			t.Fatalf("SQL was read %d times", s.reads)
		}
		s.reads = 0
		r := spread.NewRefillers(mover).Of(of)
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			if err := r.Await(t.Context(), 1); !errors.Is(err, spread.ErrSoldOut) {
				t.Fatalf("error %v", err)
			}
		}
		if s.reads > 11 {
			t.Fatalf("SQL was read %d times in ten seconds", s.reads)
		}
	})
}

// While a segment cannot be read, passes over an ended sale settle the others and then do not read SQL. Once it can be
// read, it gets the units of a transfer that another process has committed meanwhile.
func TestSettledSparesSQLWhileASegmentHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mover, of := newSlow(t, 3, 9)
		s.hangs = 2
		if _, err := s.SetApart(t.Context(), of, spread.Move{From: 0, To: 1, Units: 1}); err != nil {
			t.Fatal(err)
		}
		passes := func(n, reads int) {
			t.Helper()
			s.reads, s.views = 0, 0
			for range n {
				if settled, err := mover.Settled(t.Context(), of); err != nil || settled {
					t.Errorf("settled %v, %v", settled, err)
				}
			}
			if s.reads > reads || s.views > n || s.model.segments[0].Out != nil {
				t.Errorf("SQL was read %d times and the segments %d times, want %d and %d; segment 0: %+v",
					s.reads, s.views, reads, n, s.model.segments[0])
			}
		}
		passes(10, 1)
		other := spread.NewMover(s, s)
		if _, err := other.Move(t.Context(), of, spread.Move{From: 0, To: 2, Units: 1}); err == nil {
			t.Fatal("the transfer to a segment that hangs is complete")
		}
		passes(10, 1)
		s.hangs = 0
		passes(1, 1)
		if settled, err := mover.Settled(t.Context(), of); err != nil || !settled || s.model.segments[2].Units != 4 {
			t.Errorf("settled %v, %v; segment 2: %+v", settled, err, s.model.segments[2])
		}
	})
}
