// Package rehearsal simulates the buyers of a flash sale against a copy of a sale on a running deployment, through
// its edge, and decides whether the deployment is ready for the real sale.
//
//	run.go         the steps of a rehearsal: create the copy, simulate, wait for the rows, evaluate, remove the copy
//	workload.go    arrivals and behavior of buyers: the plan, generated from a seed
//	simulator.go   the requests of one simulated buyer
//	connection.go  connections to the edge, with one source address for each buyer if possible
//	probe.go       how buyers get different source addresses
//	tally.go       responses, response times and their distribution
//	judge.go       go, no-go or unclear, and the reasons
//	report.go      the report as JSON and text; html.go as a page, with the diagrams of package plot
//
// It is an open model: a request is sent at its planned time even if earlier responses are slow, and response times
// count from the planned time. The package accesses neither Redis nor SQL, and no real sale: its caller implements
// Stage and Records with the admin API.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/client"
	"sluice/internal/loop"
)

// Sale is the copy of a sale.
type Sale struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Stock    int64  `json:"stock"`
	PerBuyer int64  `json:"per_buyer"`
}

func queued(a client.Audit) int64 { return a.Ready + a.Delayed + a.Leased }

// Stage creates and removes the copy of the sale. Implementations call the admin API.
type Stage interface {
	// Make creates a copy of a sale. stock 0 is that of the sale.
	Make(ctx context.Context, saleID string, stock int64, opens, closes time.Time) (Sale, error)
	// Remove closes the copy and deletes it with its orders. gone is false, without an error, while orders are queued.
	Remove(ctx context.Context, id string) (orders int64, gone bool, err error)
}

// Records reads the orders of a sale (client.Admin).
type Records interface {
	Audit(ctx context.Context, id string) (client.Audit, error)
	Orders(ctx context.Context, f client.OrderFilter) iter.Seq2[client.AdminOrder, error]
	DeadLetters(ctx context.Context, saleID string) iter.Seq2[client.DeadLetter, error]
}

// Config configures a rehearsal. All fields are required, except Stock.
type Config struct {
	Sale        string // id of the real sale
	Stock       int64  // units of the copy; 0: those of the sale
	Workload    Workload
	Target      *url.URL // the edge
	Sign        func(buyer string, ttl time.Duration) (string, error)
	Stage       Stage
	Records     Records
	Limits      Limits
	Connections int                           // open connections
	Timeout     time.Duration                 // of a response
	Lead        time.Duration                 // between the creation of the copy and its opening
	Buyer       func(saleID, n string) string // name of a simulated buyer
	Progress    func(Progress)                // called about twice a second, by one goroutine at a time
}

const (
	// tail is the time after the last arrival in which shoppers may wait and retry.
	tail = time.Minute
	// pollEvery is the interval of the audit and of progress reports.
	pollEvery = 500 * time.Millisecond
	// cleanupTimeout limits the removal of the copy.
	cleanupTimeout = 90 * time.Second
)

// unremoved ends an error about a copy that may still exist.
const unremoved = `it closes automatically, and "sluice rehearse clean" removes it`

// Run performs a rehearsal. It returns when all actors have finished and every order is a row, or when ctx ends. In
// both cases it removes the copy and returns a report. cleaning, which outlives ctx, bounds these steps. If Run returns
// an error and no report, the copy was not created, or cleaning ended meanwhile. If it returns both, the copy was not
// removed; it closes automatically, and "sluice rehearse clean" removes it.
func Run(ctx, cleaning context.Context, cfg Config) (*Report, error) {
	r := newRun(cfg)
	defer r.edge.closeIdle()
	r.step.Store("testing the edge")
	if err := r.edge.detectAddresses(ctx); err != nil {
		return nil, err
	}
	r.backend = r.edge.isBackend(ctx)
	r.step.Store("creating a copy of the sale")
	signing, err := r.signing()
	if err != nil {
		return nil, err
	}
	opening := time.Now().Add(cfg.Lead + signing)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// This call must not end with ctx: the id of the copy would be unknown.
	made, err := cfg.Stage.Make(cleaning, cfg.Sale, cfg.Stock, opening,
		opening.Add(cfg.Workload.Span+tail+2*cfg.Limits.Drain))
	if err != nil && cleaning.Err() != nil {
		err = fmt.Errorf("create the copy: %w; if the server has created it, %s", err, unremoved)
	}
	if err != nil {
		return nil, err
	}
	r.sale, r.opening = made, opening
	playErr := r.play(ctx)
	r.drain(ctx, cleaning)

	// The following steps are also performed if ctx has ended.
	clean, cancel := context.WithTimeout(cleaning, cleanupTimeout+2*cfg.Limits.Drain)
	defer cancel()
	report := r.report(clean, ctx.Err() != nil, playErr)
	r.setStep("removing the copy")
	report.Removed, err = r.remove(clean)
	if err != nil {
		err = fmt.Errorf("remove the copy %s: %w; %s", made.ID, err, unremoved)
		report.NotRemoved = err.Error()
	}
	return report, err
}

type run struct {
	Config
	tally   *tally
	edge    *edge
	sale    Sale
	opening time.Time
	backend bool // the target is a backend
	started atomic.Int64
	step    atomic.Value // string

	mu           sync.Mutex
	left, queued int64   // of the last audit; -1 if unknown
	points       []Point // of all audits
}

// Point is the state at one time.
type Point struct {
	At     float64 `json:"at_seconds"`
	Left   int64   `json:"left"`
	Queued int64   `json:"queued"`
}

func newRun(cfg Config) *run {
	return &run{
		Config: cfg, tally: newTally(), edge: newEdge(cfg.Target, cfg.Connections, cfg.Timeout), left: -1, queued: -1,
		points: []Point{},
	}
}

func (r *run) now() time.Duration { return time.Since(r.opening) }

// signing estimates the time to sign all tokens, which depends strongly on the kind of key. It returns twice the
// estimate.
func (r *run) signing() (time.Duration, error) {
	const some = 20
	begun := time.Now()
	for range some {
		if _, err := r.Sign(r.Buyer(r.Config.Sale, "0"), time.Hour); err != nil {
			return 0, fmt.Errorf("sign: %w", err)
		}
	}
	return 2 * time.Since(begun) / some * time.Duration(r.Workload.Buyers), nil
}

func (r *run) setStep(what string) {
	r.step.Store(what)
	r.Progress(r.progress())
}

func (r *run) progress() Progress {
	p := r.tally.progress()
	p.At, p.Actors, p.Of = r.now(), int(r.started.Load()), r.Workload.Buyers
	p.Step, _ = r.step.Load().(string)
	r.mu.Lock()
	p.Left, p.Queued = r.left, r.queued
	r.mu.Unlock()
	return p
}

// play simulates all actors. An error means that the rehearsal has no result.
func (r *run) play(ctx context.Context) error {
	actors := r.Workload.plan()
	r.step.Store("signing tokens")
	tokens, err := r.tokens(ctx, actors)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { stop(r.watch(ctx)) })
	defer func() { stop(nil); watching.Wait() }()

	r.step.Store("waiting for the opening")
	playing, cancel := context.WithDeadline(ctx, r.opening.Add(r.Workload.Span+tail))
	defer cancel()
	var players sync.WaitGroup
	for i, a := range actors {
		if !r.until(playing, a.At) && ctx.Err() != nil {
			break
		}
		if !a.Kind.Bot() {
			r.step.Store("shoppers arrive")
		}
		r.started.Add(1)
		p := &player{run: r, actor: a, token: tokens[i], buyer: r.Buyer(r.sale.ID, a.Name)}
		players.Go(func() { p.simulate(playing) })
	}
	r.step.Store("waiting for the last responses")
	players.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errRemoved) {
		return cause
	}
	return nil
}

func (r *run) tokens(ctx context.Context, actors []actor) ([]string, error) {
	tokens := make([]string, len(actors))
	ttl := time.Until(r.opening) + r.Workload.Span + tail + time.Hour
	for i, a := range actors {
		signed, err := r.Sign(r.Buyer(r.sale.ID, a.Name), ttl)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		if a.Kind == forger {
			signed = forge(signed)
		}
		if tokens[i] = signed; i%1000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return tokens, nil
}

func forge(token string) string {
	at := strings.LastIndexByte(token, '.') + 1
	letter := "A"
	if token[at] == 'A' {
		letter = "B"
	}
	return token[:at] + letter + token[at+1:]
}

// watch records the audit until ctx ends, or until the copy was removed: then it returns errRemoved.
func (r *run) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		switch a, err := r.Records.Audit(ctx, r.sale.ID); {
		case err == nil:
			r.record(a)
		case errors.Is(err, client.NotFound):
			return errRemoved
		}
		r.Progress(r.progress())
		loop.Sleep(ctx, pollEvery)
	}
	return nil
}

var errRemoved = errors.New("the copy was removed meanwhile")

func (r *run) record(a client.Audit) {
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.queued = a.Left, queued(a)
	r.points = append(r.points, Point{at.Seconds(), a.Left, queued(a)})
}

// drained returns when the queue became empty after the last accepted order. It reports false if the queue was not
// empty at the end.
func drained(points []Point, last float64) (at float64, ok bool) {
	for i := len(points) - 1; i >= 0 && points[i].Queued == 0 && points[i].At >= last; i-- {
		at, ok = points[i].At, true
	}
	return at, ok
}

// drain waits until the queue is empty, or the copy was removed. It waits for at most twice Limits.Drain, for at most
// stopGrace after ctx has ended, and no longer than cleaning.
func (r *run) drain(ctx, cleaning context.Context) {
	r.setStep("waiting for queued orders")
	ctx, stop := loop.Outlive(ctx, stopGrace)
	defer stop()
	defer context.AfterFunc(cleaning, stop)()
	ctx, cancel := context.WithTimeout(ctx, 2*r.Limits.Drain)
	defer cancel()
	for ctx.Err() == nil {
		a, err := r.Records.Audit(ctx, r.sale.ID)
		if err == nil {
			r.record(a)
		}
		if err == nil && queued(a) == 0 || errors.Is(err, client.NotFound) {
			return
		}
		loop.Sleep(ctx, pollEvery/5)
	}
}

// stopGrace is how long a stopped rehearsal waits for queued orders.
const stopGrace = 5 * time.Second

// remove removes the copy, and retries until it is gone.
func (r *run) remove(ctx context.Context) (orders int64, err error) {
	for {
		n, gone, err := r.Stage.Remove(ctx, r.sale.ID)
		if orders += n; gone {
			return orders, nil
		}
		if err == nil {
			err = errors.New("orders are still queued")
		}
		loop.Sleep(ctx, pollEvery+rand.N(pollEvery)) //nolint:gosec // spreads
		if ctx.Err() != nil {
			return orders, err
		}
	}
}
