package rebuild

import (
	"slices"
	"sync"
	"time"
)

// Status is the progress of the rebuilds of this process.
type Status struct {
	Running  bool       `json:"running"`
	Fence    int64      `json:"fence,omitempty"` // of the rebuild, or of its first shard; 0 if there was none
	Step     string     `json:"step,omitempty"`
	Done     int64      `json:"done"`  // orders or sales of the step that are done
	Total    int64      `json:"total"` // orders or sales of the step; 0 if not known
	Started  *time.Time `json:"started_at,omitempty"`
	Finished *time.Time `json:"finished_at,omitempty"`
	Error    string     `json:"error,omitempty"`
	Sales    []Outcome  `json:"sales,omitempty"` // of the last rebuild, when it has finished
	// NotInSQL are the ids of sales that only Redis has. They sell nothing until they are created again and rebuilt.
	NotInSQL []string `json:"not_in_sql,omitempty"`
}

// Outcome is the result of a rebuild for one sale.
type Outcome struct {
	SaleID    string `json:"sale_id"`
	Left      int64  `json:"left"`
	Orders    int64  `json:"orders"`           // orders that hold a unit
	Requeued  int    `json:"requeued"`         // orders that had only a slot, and were queued again
	Unbacked  int    `json:"unbacked"`         // dead letters of orders without a unit or slot
	Corrected int    `json:"corrected_buyers"` // buyers with corrected slots
	Balanced  bool   `json:"balanced"`
	Why       string `json:"why,omitempty"` // the reason if it is not balanced
}

type status struct {
	mu  sync.Mutex
	now Status
}

// Status returns the progress of the rebuild of this process that began last.
func (r *Rebuilder) Status() Status {
	latest := r.latest.Load()
	if latest == nil {
		return Status{}
	}
	latest.mu.Lock()
	defer latest.mu.Unlock()
	s := latest.now
	s.Sales, s.NotInSQL = slices.Clone(s.Sales), slices.Clone(s.NotInSQL)
	return s
}

func (s *status) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
}

func (s *status) begin(fence int64) {
	started := time.Now().UTC()
	s.set(func(n *Status) {
		if n.Fence == 0 { // the first shard
			*n = Status{Running: true, Fence: fence, Started: &started}
		}
	})
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

// notInSQL adds sales of a shard. It removes duplicates, because several shards have segments of one spread sale.
func (s *status) notInSQL(ids []string) {
	s.set(func(n *Status) {
		n.NotInSQL = append(n.NotInSQL, ids...)
		slices.Sort(n.NotInSQL)
		n.NotInSQL = slices.Compact(n.NotInSQL)
	})
}

func (s *status) sale(c *saleCount) {
	s.set(func(n *Status) {
		n.Sales = append(n.Sales, Outcome{
			SaleID: c.def.ID, Left: c.report.Left, Orders: c.report.Stock - c.report.Left, Requeued: len(c.requeued),
			Unbacked: len(c.unbacked), Corrected: c.corrected, Balanced: c.report.Balanced, Why: c.reason,
		})
	})
}
