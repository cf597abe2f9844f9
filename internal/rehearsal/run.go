package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/client"
)

// Config is a whole rehearsal.
type Config struct {
	Sale        string // what is rehearsed
	Stock       int64  // units of the copy; 0: as many as the sale has
	Crowd       Crowd
	Target      *url.URL // the edge
	Sign        func(buyer string, ttl time.Duration) (string, error)
	Stage       Stage
	Books       Books
	Faults      Faults
	Limits      Limits
	Connections int                           // that may be open at once; 0: 10,000
	Timeout     time.Duration                 // for one answer; 0: 10 s
	Lead        time.Duration                 // from the making of the copy to its opening; 0: 3 s
	Buyer       func(saleID, n string) string // names one of the crowd
	Progress    func(Progress)                // told about twice a second, by one goroutine at a time; may be nil
}

func (c Config) withDefaults() Config {
	if c.Connections <= 0 {
		c.Connections = 10_000
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Lead <= 0 {
		c.Lead = 3 * time.Second
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

const (
	// tail is for how long people may still wait and come back after the last has come.
	tail = time.Minute
	// looksEvery is how often the count of the rehearsal is looked at, and progress told.
	looksEvery = 500 * time.Millisecond
	// cleaning bounds the removal, which goes on when everything else was stopped.
	cleaning = 90 * time.Second
)

// Run rehearses. It ends when everybody has gone and every order is a row, or early when ctx ends; either way the copy is removed and there is a Report, unless
// the copy could not be made at all. An error beside a Report says that the copy could not be removed: it sells nothing any more, and the next clean removes it.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.withDefaults()
	r := &run{Config: cfg, tally: newTally(), x: newExchange(cfg.Target, cfg.Connections, cfg.Timeout), watched: &watched{left: -1, queued: -1}}
	defer r.x.close()
	r.says.Store("looking at the edge")
	if err := r.x.choose(ctx); err != nil {
		return nil, err
	}
	r.says.Store("making a copy of the sale")
	signing, err := r.signing()
	if err != nil {
		return nil, err
	}
	opening := time.Now().Add(cfg.Lead + signing)
	// Whoever hangs up now would not know what to remove.
	made, err := cfg.Stage.Make(context.WithoutCancel(ctx), cfg.Sale, cfg.Stock, opening, opening.Add(cfg.Crowd.Span+tail+2*cfg.Limits.Drain))
	if err != nil {
		return nil, err
	}
	r.sale, r.opening = made, opening
	playErr := r.play(ctx)
	stopped := ctx.Err() != nil

	// What comes now must be done whoever hangs up: the report of a rehearsal that was stopped says so.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning+2*cfg.Limits.Drain)
	defer cancel()
	r.drain(ctx, clean)
	report := r.report(clean, stopped, playErr)
	r.tell("removing the copy")
	report.Removed, err = r.remove(clean)
	if err != nil {
		err = fmt.Errorf("the rehearsal %s could not be removed; it is closed or closes by itself, and \"sluice rehearse clean\" removes it: %w", made.ID, err)
		report.NotRemoved = err.Error()
	}
	return report, err
}

// run is one rehearsal under way.
type run struct {
	Config
	tally   *tally
	x       *exchange
	sale    Sale
	opening time.Time
	came    atomic.Int64
	says    atomic.Value // string
	watched *watched
	faults  []Fault
	kept    int64 // people who were still waiting for an answer in the end
}

// watched is what the stores were seen to hold.
type watched struct {
	mu           sync.Mutex
	left, queued int64
	points       []Point
}

// Point is the count at one instant.
type Point struct {
	At     float64 `json:"at_seconds"`
	Left   int64   `json:"left"`
	Queued int64   `json:"queued"`
}

func (r *run) now() time.Duration { return time.Since(r.opening) }

// signing is how long it takes to sign everybody's tokens, with room to spare: some kinds of key take a hundred times as long as others.
func (r *run) signing() (time.Duration, error) {
	const some = 20
	begun := time.Now()
	for range some {
		if _, err := r.Sign(r.Buyer(r.Config.Sale, "0"), time.Hour); err != nil {
			return 0, fmt.Errorf("sign: %w", err)
		}
	}
	return 2 * time.Since(begun) / some * time.Duration(r.Crowd.Buyers), nil
}

// tell says what is done now.
func (r *run) tell(what string) {
	r.says.Store(what)
	r.Progress(r.progress())
}

func (r *run) progress() Progress {
	p := r.tally.progress()
	p.At, p.Actors, p.Of = r.now(), int(r.came.Load()), r.Crowd.Buyers
	p.Says, _ = r.says.Load().(string)
	r.watched.mu.Lock()
	p.Left, p.Queued = r.watched.left, r.watched.queued
	r.watched.mu.Unlock()
	return p
}

// play lets the crowd come and go. The error says why the rehearsal is worth nothing.
func (r *run) play(ctx context.Context) error {
	actors := r.Crowd.Plan()
	r.says.Store("signing tokens")
	tokens, err := r.tokens(ctx, actors)
	if err != nil {
		return err
	}
	p := &player{exchange: r.x, tally: r.tally, sale: r.sale.ID, opening: r.opening, retries: r.Crowd.Retries}

	watching, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(watching) })
	beside.Go(func() { r.fail(watching) })
	defer func() { stop(); beside.Wait() }()

	r.says.Store("waiting for the opening")
	playing, cancel := context.WithDeadline(ctx, r.opening.Add(r.Crowd.Span+tail))
	defer cancel()
	var crowd sync.WaitGroup
	for i, a := range actors {
		if !p.until(playing, a.At) {
			break
		}
		if !a.Kind.Bot() {
			r.says.Store("people come")
		}
		r.came.Add(1)
		crowd.Go(func() { p.play(playing, a, tokens[i], r.Buyer(r.sale.ID, a.Name)) })
	}
	r.says.Store("the last of them wait for their answers")
	crowd.Wait()
	r.kept = p.kept.Load()
	return nil
}

// tokens signs one for each of the crowd; those of forgers are not as they were signed.
func (r *run) tokens(ctx context.Context, actors []Actor) ([]string, error) {
	tokens := make([]string, len(actors))
	ttl := time.Until(r.opening) + r.Crowd.Span + tail + time.Hour
	for i, a := range actors {
		signed, err := r.Sign(r.Buyer(r.sale.ID, a.Name), ttl)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		if a.Kind == Forger {
			signed = forge(signed)
		}
		if tokens[i] = signed; i%1000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return tokens, nil
}

// forge changes the signature of a token.
func forge(token string) string {
	at := strings.LastIndexByte(token, '.') + 1
	letter := "A"
	if token[at] == 'A' {
		letter = "B"
	}
	return token[:at] + letter + token[at+1:]
}

// watch looks at the count until ctx ends.
func (r *run) watch(ctx context.Context) {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	for {
		if a, err := r.Books.Audit(ctx, r.sale.ID); err == nil {
			r.saw(a)
		}
		r.Progress(r.progress())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *run) saw(a client.Audit) {
	at := r.now()
	r.watched.mu.Lock()
	defer r.watched.mu.Unlock()
	r.watched.left, r.watched.queued = a.Left, queued(a)
	r.watched.points = append(r.watched.points, Point{at.Seconds(), a.Left, queued(a)})
}

// drained is when nothing was on its way any more, of orders the last of which came at an instant; false when something still is, as far as was seen.
func drained(points []Point, last float64) (at float64, ok bool) {
	for i := len(points) - 1; i >= 0 && points[i].Queued == 0 && points[i].At >= last; i-- {
		at, ok = points[i].At, true
	}
	return at, ok
}

// drain waits until nothing is on its way, at most as long as twice the limit: what takes longer than that is a result too. Whoever has stopped the rehearsal waits for
// a few seconds only.
func (r *run) drain(ctx, clean context.Context) {
	r.tell("orders become rows")
	most := 2 * r.Limits.Drain
	if ctx.Err() != nil {
		ctx, most = clean, min(most, hurried)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for ctx.Err() == nil {
		a, err := r.Books.Audit(ctx, r.sale.ID)
		if err == nil {
			if r.saw(a); queued(a) == 0 {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(looksEvery / 5):
		}
	}
}

// hurried is for how long a rehearsal that was stopped waits for its orders.
const hurried = 5 * time.Second

// remove asks until the copy is gone.
func (r *run) remove(ctx context.Context) (orders int64, err error) {
	for {
		n, gone, err := r.Stage.Remove(ctx, r.sale.ID)
		if orders += n; gone {
			return orders, nil
		}
		if err == nil {
			err = errors.New("orders are still on their way")
		}
		select {
		case <-ctx.Done():
			return orders, err
		case <-time.After(looksEvery + rand.N(looksEvery)): //nolint:gosec // spreads
		}
	}
}
