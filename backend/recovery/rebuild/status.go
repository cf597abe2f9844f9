package rebuild

import (
	"sync"
	"time"
)

// Status is how far the rebuilds of this process have come.
type Status struct {
	Running  bool       `json:"running"`
	Fence    int64      `json:"fence,omitempty"` // number of the one under way, or of the last; 0: none yet
	Step     string     `json:"step,omitempty"`
	Done     int64      `json:"done"`  // of the step, in orders or sales
	Total    int64      `json:"total"` // 0: not known
	Started  *time.Time `json:"started_at,omitempty"`
	Finished *time.Time `json:"finished_at,omitempty"`
	Error    string     `json:"error,omitempty"`
	Sales    []Outcome  `json:"sales,omitempty"` // of the last one, when it has finished
}

// Outcome is what a rebuild has made of one sale.
type Outcome struct {
	SaleID    string `json:"sale_id"`
	Left      int64  `json:"left"`
	Orders    int64  `json:"orders"`           // that hold a unit, wherever they are
	Requeued  int    `json:"requeued"`         // were neither a row nor in the queue, and wait again
	Unbacked  int    `json:"unbacked"`         // dead letters for want of a unit or a place
	Corrected int    `json:"corrected_buyers"` // buyers whose places were put right
	Balanced  bool   `json:"balanced"`
	Why       string `json:"why,omitempty"` // it does not balance
}

type status struct {
	mu  sync.Mutex
	now Status
}

// Status tells how far it is.
func (r *Rebuilder) Status() Status {
	r.status.mu.Lock()
	defer r.status.mu.Unlock()
	s := r.status.now
	s.Sales = append([]Outcome(nil), s.Sales...)
	return s
}

func (s *status) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
}

func (s *status) begin(fence int64) {
	started := time.Now().UTC()
	s.set(func(n *Status) { *n = Status{Running: true, Fence: fence, Started: &started} })
}

func (s *status) end(err error) {
	finished := time.Now().UTC()
	s.set(func(n *Status) {
		n.Running, n.Finished = false, &finished
		if err != nil {
			n.Error, n.Sales = err.Error(), nil
		}
	})
}

func (s *status) step(name string) { s.set(func(n *Status) { n.Step, n.Done, n.Total = name, 0, 0 }) }
func (s *status) total(k int)      { s.set(func(n *Status) { n.Total += int64(k) }) }
func (s *status) done(k int)       { s.set(func(n *Status) { n.Done += int64(k) }) }

func (s *status) sale(a *saleCount) {
	s.set(func(n *Status) {
		n.Sales = append(n.Sales, Outcome{
			SaleID: a.def.ID, Left: a.report.Left, Orders: a.report.Stock - a.report.Left,
			Requeued: len(a.requeued), Unbacked: len(a.unbacked), Corrected: a.corrected, Balanced: a.report.Balanced, Why: a.why,
		})
	})
}
