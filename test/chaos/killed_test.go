package chaos

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The end of following is that of the run, also if the database is down then.
func TestFollowingEnds(t *testing.T) {
	type reply struct {
		left []int64
		err  error
	}
	down := reply{nil, errors.New("the database is down")}
	for name, c := range map[string]struct {
		replies []reply // to the queries; the last one is repeated
		stuck   []int64
		late    bool
	}{
		"rows before the kill":        {[]reply{{}}, nil, false},
		"rows after an outage":        {[]reply{down, {left: []int64{2}}, down, {}}, nil, true},
		"missing":                     {[]reply{{left: []int64{1, 2}}, {left: []int64{2}}}, []int64{2}, true},
		"missing, and then an outage": {[]reply{{left: []int64{2}}, down}, []int64{2}, true},
		"outage":                      {[]reply{down}, []int64{1, 2}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, settled := context.WithTimeout(t.Context(), time.Second)
			defer settled()
			queries := 0
			stuck, late := follow(ctx, []int64{1, 2}, func(context.Context, []int64) ([]int64, error) {
				queries++
				r := c.replies[min(queries, len(c.replies))-1]
				return r.left, r.err
			})
			if !slices.Equal(stuck, c.stuck) || late != c.late {
				t.Errorf("%s: missing %v, late %v; want %v, %v", name, stuck, late, c.stuck, c.late)
			}
		})
	}
}
