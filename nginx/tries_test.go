package nginx

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// verdict is the result of a try.
type verdict int

const (
	admitted verdict = iota
	refused
	unanswered // the connection broke: it may have been admitted
)

// try is one request of a flood: it was decided at some instant between its two times.
type try struct {
	from, to time.Duration // since the flood began
	verdict  verdict
}

// flood sends requests over this number of connections for this time, while meanwhile runs. On a machine that is too
// busy for the load, it continues until a request is refused, for up to a minute. refusal is the status of a refusal.
// Errors of connections count only if there may be none.
func flood(
	t *testing.T,
	url string,
	refusal, connections int,
	lasts time.Duration,
	mayBreak bool,
	meanwhile func(),
) (tries []try, length time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var clients sync.WaitGroup
	var refusals atomic.Int64
	start := time.Now()
	for range connections {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var own []try
			for time.Since(start) < lasts || refusals.Load() == 0 && time.Since(start) < time.Minute {
				if len(own)%20 == 19 {
					client.CloseIdleConnections() // the next one may go to the other worker
				}
				one := try{from: time.Since(start)}
				response, err := client.Post(url, "", nil) // the transport repeats a GET when its connection breaks
				one.to = time.Since(start)
				switch {
				case err != nil && !mayBreak:
					t.Error(err)
					return
				case err != nil:
					one.verdict = unanswered
				default:
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
					if one.verdict = admitted; response.StatusCode == refusal {
						one.verdict = refused
						refusals.Add(1)
					} else if response.StatusCode != http.StatusOK {
						t.Errorf("status %d", response.StatusCode)
					}
				}
				own = append(own, one)
			}
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, own...)
		})
	}
	meanwhile()
	clients.Wait()
	return tries, time.Since(start)
}

func count(tries []try, v verdict) (n int) {
	for _, one := range tries {
		if one.verdict == v {
			n++
		}
	}
	return n
}

// unjust returns a refusal without a reason, if there is one: in every interval that ends with it, at most rate *
// length + burst requests were admitted, even if each was decided at the instant that favours the refusal most. The
// check is valid on a busy machine, too, which sends few requests. Of many refusals it checks about 300, including the
// last one.
func unjust(tries []try, rate float64, burst int) (bad try, found bool) {
	var taken, from, to []time.Duration
	var refusals []try
	for _, one := range tries {
		if one.verdict == refused {
			refusals = append(refusals, one)
			continue
		}
		from, to = append(from, one.from), append(to, one.to)
		taken = append(taken, one.from, one.to)
	}
	slices.Sort(from)
	slices.Sort(to)
	slices.SortFunc(refusals, func(a, b try) int { return int(a.from - b.from) })
	const looks = 300
	step := max(1, len(refusals)/looks)
	for i := len(refusals) - 1; i >= 0; i -= step {
		r := refusals[i]
		later, _ := slices.BinarySearch(from, r.to+1)
		just := false
		for j := 0; j < len(taken) && !just; j += 2 { // the interval begins with this one
			begins, known := taken[j], taken[j+1]
			before, _ := slices.BinarySearch(to, begins)
			inside := float64(later - before)
			just = begins <= r.to && inside-rate*max(0, r.from-known).Seconds() > float64(burst)
		}
		if !just {
			return r, true
		}
	}
	return try{}, false
}

func TestUnjustRefusalIsFound(t *testing.T) {
	const ms = time.Millisecond
	at := func(v verdict, times ...time.Duration) (tries []try) {
		for _, when := range times {
			tries = append(tries, try{when, when + ms/10, v})
		}
		return tries
	}
	for _, c := range []struct {
		name  string
		tries []try
		found bool
	}{
		{"nothing refused", at(admitted, 0, ms), false},
		{"the burst is taken", append(at(admitted, 0, ms, 2*ms), at(refused, 3*ms)...), false},
		{"the burst is not taken", append(at(admitted, 0, ms), at(refused, 2*ms)...), true},
		{"it is refilled", append(at(admitted, 0, ms, 2*ms), at(refused, 150*ms)...), true},
		{"it is refilled and taken again", append(at(admitted, 0, ms, 2*ms, 150*ms), at(refused, 151*ms)...), false},
		{"of two refusals the first", append(at(admitted, 0, ms, 4*ms), at(refused, 3*ms, 5*ms)...), true},
		{"one without an answer", append(append(at(admitted, 0, ms), at(unanswered, 2*ms)...), at(refused, 3*ms)...), false},
		{"half the rate", append(at(admitted, 0, 0, 0, 200*ms, 400*ms, 600*ms), at(refused, 700*ms)...), true},
	} {
		if bad, found := unjust(c.tries, 10, 2); found != c.found {
			t.Errorf("%s: found %v %v, want %v", c.name, bad, found, c.found)
		}
	}
}
