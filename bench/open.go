package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// openKind is one of the two event streams of a page.
type openKind struct {
	name, path  string
	open, limit string // metrics
	// cause causes an event for some of the open streams: receivers of them, or all if it is 0.
	cause     func(ctx context.Context, h *openDeployment) error
	receivers int
}

// openResult is the cost of many open streams.
type openResult struct {
	asked               int
	answers             opened
	before, full, after backendFigures // the sums of all backends
	openedIn, goneIn    float64        // seconds
	eventP50, eventP99  float64        // ms, from the change until a stream receives it
	answersP99          float64        // ms, of GET /v1/sales/{sale} over a new connection, while all are open
}

// backendFigures are the metrics of a backend.
type backendFigures struct {
	streams, limit, goroutines, files int64
	live                              int64 // bytes on the heap, after a collection
	resident                          int64 // bytes
}

const (
	openedSale   = "open"
	eventOrders  = 2000 // orders that are written while all pages are open
	openAnswers  = 200  // other requests meanwhile
	perOpener    = 8000 // streams of one process
	goneWithin   = 90 * time.Second
	slackRoutine = 25      // goroutines that start and end independently of the streams
	slackHeap    = 8 << 20 // bytes of a backend's heap that are kept for the next streams: buffers, and the last events
)

// openDeployment holds the backends and their stores.
type openDeployment struct {
	shop

	backends []backend
	orders   *store.Store
	written  loop.Wake // wakes the relay
	ids      ids
	wrote    int
}

// openPages opens as many event streams as the backends accept, and some more. It measures the cost of one stream. It
// verifies that rejected clients receive the polling interval, that every stream receives a change, and that closed
// streams release all resources.
func openPages(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("open", flag.ContinueOnError)
	buyers := flags.Int("buyers", 20_000, "buyers with a page open; as many backends are started as it takes")
	rounds := flags.Int("rounds", 2, "how often all pages are opened and closed")
	if err := parse(flags, args); err != nil {
		return err
	}
	h := newOpenDeployment(ctx, s)
	kinds := []openKind{
		{"orders of a buyer", "/v1/me/events", "sluice_notify_pages", "sluice_notify_pages_limit", writeSome, eventOrders},
		{
			"a sale", "/v1/sales/" + openedSale + "/events",
			"sluice_api_event_streams", "sluice_api_event_streams_limit", restockOne, 0,
		},
	}
	first, err := h.figures(ctx, kinds[0])
	if err != nil {
		return err
	}
	for int64(len(h.backends))*first.limit < int64(*buyers) {
		h.backends = append(h.backends, h.backend())
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stream\tround\tbackends\tclients\topen\trejected\tretry after\tper stream: heap\tgoroutines\tfiles\t"+
		"change received p50\tp99\tother answers p99\tgone in\theap before, full, after\tresident\t")
	for _, k := range kinds {
		for round := range *rounds {
			r, err := h.round(ctx, k, *buyers*11/10)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", k.name, round+1, err)
			}
			fmt.Fprintf(t, "%s\t%d\t%d\t", k.name, round+1, len(h.backends))
			r.print(t)
		}
	}
	return t.Flush()
}

func newOpenDeployment(ctx context.Context, s *stage) *openDeployment {
	h := &openDeployment{shop: newShop(s)}
	h.backends = []backend{h.backend()}
	for _, id := range []string{saleID, openedSale} {
		s.check(h.createSale(ctx, h.backends[0], id, 100_000, "-1s"))
	}
	db, _ := openDatabase(s, h.sql.URL, nil)
	h.orders = store.New(db)
	h.written = loop.NewWake()
	go func() { _ = events.RunWaker(ctx, h.redis.Client(), keyspace.Space{}, h.written) }()
	return h
}

// writeSome writes orders of the first buyers, as a worker does.
func writeSome(ctx context.Context, h *openDeployment) error {
	orders := h.ids.orders(eventOrders)
	for i := range orders { // a buyer's next one, in each round
		orders[i].Slot, orders[i].Serial = h.wrote+1, int64(h.wrote*eventOrders+i+1)
	}
	h.wrote++
	defer h.written.Up()
	return h.orders.Write(ctx, orders)
}

// restockOne changes the number of units that are left.
func restockOne(ctx context.Context, h *openDeployment) error {
	return h.sluice(ctx, h.backends[0], "sale", "restock", openedSale, "--add", "1")
}

// round opens the streams, causes an event, and closes them.
func (h *openDeployment) round(ctx context.Context, k openKind, asked int) (r openResult, err error) {
	if r.before, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	r.asked = max(asked, int(r.before.limit)*11/10)
	begin := time.Now()
	crowd := h.startCrowd(k, r.asked)
	if err := crowd.opened(&r.answers); err != nil {
		return r, err
	}
	r.openedIn = time.Since(begin).Seconds()
	if a := r.answers; a.Failed > 0 || a.Open != min(r.asked, int(r.before.limit)) || a.Open+a.Refused != r.asked {
		return r, fmt.Errorf("of %d clients, %d have a stream, %d got 503, and %d failed (%s); the backends accept %d",
			r.asked, a.Open, a.Refused, a.Failed, a.Error, r.before.limit)
	}
	if r.answersP99, err = h.otherAnswers(ctx); err != nil {
		return r, err
	}
	if err := crowd.measureEvent(ctx, k, h, &r); err != nil {
		return r, err
	}
	if r.full, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	if r.full.streams != int64(r.answers.Open) {
		return r, fmt.Errorf("the backends count %d open streams, want %d", r.full.streams, r.answers.Open)
	}
	begin = time.Now()
	if err := crowd.leave(); err != nil {
		return r, err
	}
	for {
		if r.after, err = h.figures(ctx, k); err != nil {
			return r, err
		}
		if r.after.streams == 0 && r.after.goroutines <= r.before.goroutines+slackRoutine &&
			r.after.files <= r.before.files+slackRoutine {
			break
		}
		if time.Since(begin) > goneWithin {
			return r, fmt.Errorf("after %v there are still %+v; before the run: %+v", goneWithin, r.after, r.before)
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.goneIn = time.Since(begin).Seconds()
	if r.after, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	if r.after.live-r.before.live > (r.full.live-r.before.live)/4+int64(len(h.backends))*slackHeap {
		return r, fmt.Errorf("%d bytes are live before, %d with all open, and %d when all are closed",
			r.before.live, r.full.live, r.after.live)
	}
	fmt.Fprintf(os.Stderr, "%s: %d open and %d rejected with 503 after %.1f s; all closed in %.1f s\n",
		k.name, r.answers.Open, r.answers.Refused, r.openedIn, r.goneIn)
	return r, nil
}

// otherAnswers requests the sale over new connections while all streams are open, and returns the 99th percentile in
// ms.
func (h *openDeployment) otherAnswers(ctx context.Context) (float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	var took []float64
	for i := range openAnswers {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+h.backends[i%len(h.backends)].addr+"/v1/sales/"+openedSale, nil)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			return 0, fmt.Errorf("while all are open: %w", err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("while all are open: %s, %w", resp.Status, err)
		}
		took = append(took, float64(time.Since(begin))/1e6)
	}
	_, p99 := percentiles(took)
	return p99, nil
}

func (r openResult) print(w io.Writer) {
	one := func(full, before int64) float64 { return float64(full-before) / float64(max(1, r.answers.Open)) }
	const mb = 1 << 20
	fmt.Fprintf(w, "%s\t%s\t%s\t%d..%d s\t", number(float64(r.asked)), number(float64(r.answers.Open)),
		number(float64(r.answers.Refused)), r.answers.AfterMin, r.answers.AfterMax)
	fmt.Fprintf(w, "%.1f kB\t%.2f\t%.2f\t", one(r.full.live, r.before.live)/1024,
		one(r.full.goroutines, r.before.goroutines), one(r.full.files, r.before.files))
	fmt.Fprintf(w, "%.0f ms\t%.0f ms\t%.1f ms\t%.0f s\t", r.eventP50, r.eventP99, r.answersP99, r.goneIn)
	fmt.Fprintf(w, "%d, %d, %d MB\t%d, %d, %d MB\t\n", r.before.live/mb, r.full.live/mb, r.after.live/mb,
		r.before.resident/mb, r.full.resident/mb, r.after.resident/mb)
}

// figures sums the metrics of the backends.
func (h *openDeployment) figures(ctx context.Context, k openKind) (sum backendFigures, err error) {
	of := map[string]*int64{
		k.open: &sum.streams, k.limit: &sum.limit, "go_goroutines": &sum.goroutines, "process_open_fds": &sum.files,
		"go_memstats_heap_alloc_bytes": &sum.live, "process_resident_memory_bytes": &sum.resident,
	}
	for _, b := range h.backends {
		if err := metrics(ctx, b.admin, func(name string, value float64) {
			if n := of[name]; n != nil {
				*n += int64(value)
			}
		}); err != nil {
			return sum, err
		}
	}
	if sum.limit == 0 {
		return sum, fmt.Errorf("the backends do not export %s", k.limit)
	}
	return sum, nil
}

// collected returns figures after every backend has collected its garbage.
func (h *openDeployment) collected(ctx context.Context, k openKind) (backendFigures, error) {
	for _, b := range h.backends {
		for range 3 { // objects in a sync.Pool survive one collection
			if _, err := fetch(ctx, "http://"+b.admin+"/debug/pprof/heap?gc=1", secret); err != nil {
				return backendFigures{}, err
			}
		}
	}
	return h.figures(ctx, k)
}
