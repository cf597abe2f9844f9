package sim

import (
	"fmt"
	"io"
	"time"
)

// Result counts the events of one run and lists its violations.
type Result struct {
	Steps, Accepted, Rows, Dead int
	Faults                      [fates]int
	Calamities                  [calamities]int
	Freezes, Stops              int
	Starts, Groups              int
	Payments                    int
	SoldOut                     int           // sales with several segments that were sold out at the end
	Took                        time.Duration // by the fake clock
	Violation                   string        // empty: none
	Trace                       []string      // every step, one line each
}

// Add adds the numbers of another run.
func (r *Result) Add(o Result) {
	r.Steps, r.Accepted, r.Rows, r.Dead = r.Steps+o.Steps, r.Accepted+o.Accepted, r.Rows+o.Rows, r.Dead+o.Dead
	for i := range r.Faults {
		r.Faults[i] += o.Faults[i]
	}
	for i := range r.Calamities {
		r.Calamities[i] += o.Calamities[i]
	}
	r.Freezes, r.Starts, r.Took = r.Freezes+o.Freezes, r.Starts+o.Starts, r.Took+o.Took
	r.Stops, r.Groups, r.Payments = r.Stops+o.Stops, r.Groups+o.Groups, r.Payments+o.Payments
	r.SoldOut += o.SoldOut
}

// Describe writes the numbers of one or many runs.
func (r *Result) Describe(to io.Writer) {
	fmt.Fprintf(
		to,
		"%d steps, %s of simulated time, %d answers with an order, %d groups of purchases, %d payments; %d rows, %d dead "+
			"letters at the end\n",
		r.Steps,
		r.Took.Truncate(time.Second),
		r.Accepted,
		r.Groups,
		r.Payments,
		r.Rows,
		r.Dead,
	)
	for f := before; f < gone; f++ {
		fmt.Fprintf(to, "%9d %s\n", r.Faults[f], fateNames[f])
	}
	for c := range calamities {
		fmt.Fprintf(to, "%9d Redis %s\n", r.Calamities[c], calamityNames[c])
	}
	fmt.Fprintf(to, "%9d sales over several shards sold out at the end\n", r.SoldOut)
	fmt.Fprintf(to, "%9d process freezes\n%9d graceful shutdowns\n%9d processes started\n", r.Freezes, r.Stops, r.Starts)
}
