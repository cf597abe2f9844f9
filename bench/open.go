package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/store"
	"sluice/test/testenv"
)

// openKind is one of the two streams that a browser holds open.
type openKind struct {
	name, path  string
	open, limit string // metrics
	// happen causes an event for n of the open streams; 0: for all.
	happen func(ctx context.Context, h *openHouse) error
	tells  int
}

// openResult is what many open streams cost.
type openResult struct {
	Kind       string         `json:"kind"`
	Round      int            `json:"round"`
	Backends   int            `json:"backends"`
	Asked      int            `json:"asked"`
	Answers    opened         `json:"answers"`
	OpenedIn   float64        `json:"opened_in_seconds"`
	Before     backendFigures `json:"before"` // the sums of all backends
	Full       backendFigures `json:"full"`
	After      backendFigures `json:"after"`
	GoneIn     float64        `json:"gone_in_seconds"`
	ToldP50    float64        `json:"told_p50_ms"` // from the change until a stream has heard of it
	ToldP99    float64        `json:"told_p99_ms"`
	Told       int            `json:"told"`
	AnswersP99 float64        `json:"answers_p99_ms"` // of GET /v1/sales/{sale} over a new connection, while all are open
}

// backendFigures are the metrics of a backend.
type backendFigures struct {
	Streams    int64 `json:"streams"`
	Goroutines int64 `json:"goroutines"`
	Files      int64 `json:"files"`
	Live       int64 `json:"live_bytes"` // on the heap, after a collection
	Resident   int64 `json:"resident_bytes"`
	limit      int64
}

const (
	openedSale   = "open"
	toldOrders   = 2000 // orders that are written while all pages are open
	openAnswers  = 200  // other requests meanwhile
	perOpener    = 8000 // streams of one process
	goneWithin   = 90 * time.Second
	slackRoutine = 25      // goroutines that start and end independently of the streams
	slackHeap    = 8 << 20 // bytes of a backend's heap that are kept for the next streams: buffers, and the last events
)

// openHouse is the backends, and what they stand on.
type openHouse struct {
	stage      *stage
	bin, where string
	env        []string
	addrs      []string // of the API
	admins     []string
	store      *database
	waker      *events.Waker
	ids        *ids
	wrote      int
}

// openPages opens as many event streams as the backends accept, and some more. It measures the cost of one stream, that
// rejected clients are told the polling interval, that every stream receives a change, and that closed streams leave
// nothing behind.
func openPages(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("open", flag.ContinueOnError)
	buyers := flags.Int("buyers", 20_000, "buyers with a page open; as many backends are started as it takes")
	rounds := flags.Int("rounds", 2, "how often they come and go")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	if *buyers < 1 || *rounds < 1 || flags.NArg() > 0 {
		return usageError("buyers and rounds must be positive, and there are no arguments")
	}
	h, err := newOpenHouse(ctx, s)
	if err != nil {
		return err
	}
	kinds := []openKind{
		{"orders of a buyer", "/v1/me/events", "sluice_notify_pages", "sluice_notify_pages_limit", writeSome, toldOrders},
		{
			"a sale",
			"/v1/sales/" + openedSale + "/events",
			"sluice_api_event_streams",
			"sluice_api_event_streams_limit",
			restockOne,
			0,
		},
	}
	first, err := h.figures(ctx, kinds[0])
	if err != nil {
		return err
	}
	for int64(len(h.addrs))*first.limit < int64(*buyers) {
		if err := h.addBackend(ctx); err != nil {
			return err
		}
	}
	var results []openResult
	for _, k := range kinds {
		for round := range *rounds {
			r, err := h.round(ctx, k, *buyers*11/10)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", k.name, round+1, err)
			}
			r.Round = round + 1
			results = append(results, r)
		}
	}
	if *asJSON {
		return printJSON(os.Stdout, results)
	}
	printOpen(os.Stdout, results)
	return nil
}

func newOpenHouse(ctx context.Context, s *stage) (*openHouse, error) {
	h := &openHouse{stage: s, ids: newIDs()}
	var err error
	if h.bin, err = s.build(ctx); err != nil {
		return nil, err
	}
	if h.where, err = root(ctx); err != nil {
		return nil, err
	}
	server, database := testenv.StartRedis(s), testenv.StartPostgres(s)
	h.env = []string{
		"SLUICE_TOKEN_SECRET=" + secret,
		"SLUICE_ADMIN_TOKEN=" + secret,
		"SLUICE_REDIS_URL=" + server.URL,
		"SLUICE_DATABASE_URL=" + database.URL,
	}
	if err := h.addBackend(ctx); err != nil {
		return nil, err
	}
	for _, id := range []string{saleID, openedSale} {
		cmd := exec.CommandContext(
			ctx,
			h.bin,
			"sale",
			"create",
			"--id",
			id,
			"--title",
			"Bench",
			"--stock",
			"100000",
			"--price",
			"99.90EUR",
			"--opens",
			"-1s",
			"--server",
			"http://"+h.admins[0],
		)
		cmd.Env, cmd.Dir = append(os.Environ(), h.env...), s.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("sale create: %w\n%s", err, out)
		}
	}
	h.store, err = openDatabase(ctx, s, database.URL, store.Config{})
	if err != nil {
		return nil, err
	}
	h.waker = events.NewWaker(server.Client(), keyspace.Space{})
	go func() { _ = h.waker.Run(ctx) }()
	return h, nil
}

func (h *openHouse) addBackend(ctx context.Context) error {
	listen, admin := h.stage.address(), h.stage.address()
	b, err := h.stage.start(h.where, h.env, h.bin, "backend", "--listen", listen, "--admin", admin)
	if err != nil {
		return err
	}
	h.addrs, h.admins = append(h.addrs, listen), append(h.admins, admin)
	if err := errors.Join(b.await(listen), b.await(admin)); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until it has verified Redis
		if _, err = fetch(ctx, "http://"+admin+"/readyz", secret); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// writeSome writes orders of the first buyers, as a worker does.
func writeSome(ctx context.Context, h *openHouse) error {
	orders := newOrders(h.ids, 0, toldOrders)
	for i := range orders { // a buyer's next one, in each round
		orders[i].Slot, orders[i].Serial = h.wrote+1, int64(h.wrote*toldOrders+i+1)
	}
	h.wrote++
	defer h.waker.Wake()
	return h.store.Write(ctx, orders)
}

// restockOne changes what is left of the sale.
func restockOne(ctx context.Context, h *openHouse) error {
	cmd := exec.CommandContext(ctx, h.bin, "sale", "restock", openedSale, "--add", "1", "--server", "http://"+h.admins[0])
	cmd.Env, cmd.Dir = append(os.Environ(), h.env...), os.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sale restock: %w\n%s", err, out)
	}
	return nil
}

// round has them come, hear of something, and go.
func (h *openHouse) round(ctx context.Context, k openKind, asked int) (openResult, error) {
	r := openResult{Kind: k.name, Backends: len(h.addrs)}
	var err error
	if r.Before, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	r.Asked = max(asked, int(r.Before.limit)*11/10)
	begin := time.Now()
	crowd, err := h.startCrowd(ctx, k, r.Asked)
	if err != nil {
		return r, err
	}
	r.Answers, r.OpenedIn = crowd.sum, time.Since(begin).Seconds()
	if a := r.Answers; a.Failed > 0 || a.Open != min(r.Asked, int(r.Before.limit)) || a.Open+a.Refused != r.Asked {
		return r, fmt.Errorf("of %d clients, %d have a stream, %d got 503, and %d failed (%s); there is room for %d",
			r.Asked, a.Open, a.Refused, a.Failed, a.Error, r.Before.limit)
	}
	if r.AnswersP99, err = h.otherAnswers(ctx); err != nil {
		return r, err
	}
	if err := crowd.measureEvent(ctx, k, h, &r); err != nil {
		return r, err
	}
	if r.Full, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	if r.Full.Streams != int64(r.Answers.Open) {
		return r, fmt.Errorf("the backends count %d open streams, want %d", r.Full.Streams, r.Answers.Open)
	}
	begin = time.Now()
	if err := crowd.leave(); err != nil {
		return r, err
	}
	for {
		if r.After, err = h.figures(ctx, k); err != nil {
			return r, err
		}
		if r.After.Streams == 0 && r.After.Goroutines <= r.Before.Goroutines+slackRoutine &&
			r.After.Files <= r.Before.Files+slackRoutine {
			break
		}
		if time.Since(begin) > goneWithin {
			return r, fmt.Errorf("after %v there are still %+v; before the run: %+v", goneWithin, r.After, r.Before)
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.GoneIn = time.Since(begin).Seconds()
	if r.After, err = h.collected(ctx, k); err != nil {
		return r, err
	}
	if r.After.Live-r.Before.Live > (r.Full.Live-r.Before.Live)/4+int64(len(h.addrs))*slackHeap {
		return r, fmt.Errorf(
			"%d bytes are live before, %d with all open, and %d when they have gone",
			r.Before.Live,
			r.Full.Live,
			r.After.Live,
		)
	}
	fmt.Fprintf(
		os.Stderr,
		"%s: %d open and %d rejected with 503 after %.1f s; all closed in %.1f s\n",
		k.name,
		r.Answers.Open,
		r.Answers.Refused,
		r.OpenedIn,
		r.GoneIn,
	)
	return r, nil
}

// otherAnswers requests the sale over new connections while all streams are open, and returns the 99th percentile in
// ms.
func (h *openHouse) otherAnswers(ctx context.Context) (float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	var took []float64
	for i := range openAnswers {
		req, err := http.NewRequestWithContext(
			ctx,
			http.MethodGet,
			"http://"+h.addrs[i%len(h.addrs)]+"/v1/sales/"+openedSale,
			nil,
		)
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
	slices.Sort(took)
	return quantile(took, 0.99), nil
}

func printOpen(w io.Writer, results []openResult) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(
		t,
		"stream\tround\tbackends\tclients\topen\trejected\tretry after\tper stream: heap\tgoroutines\tfiles\tchange "+
			"received p50\tp99\tother answers p99\tgone in\theap before, full, after\tresident\t",
	)
	for _, r := range results {
		one := func(full, before int64) float64 { return float64(full-before) / float64(max(1, r.Answers.Open)) }
		const mb = 1 << 20
		fmt.Fprintf(
			t,
			"%s\t%d\t%d\t%s\t%s\t%s\t%d..%d s\t%.1f kB\t%.2f\t%.2f\t%.0f ms\t%.0f ms\t%.1f ms\t%.0f s\t%d, %d, %d MB\t%d, "+
				"%d, %d MB\t\n",
			r.Kind,
			r.Round,
			r.Backends,
			number(float64(r.Asked)),
			number(float64(r.Answers.Open)),
			number(float64(r.Answers.Refused)),
			r.Answers.AfterMin,
			r.Answers.AfterMax,
			one(r.Full.Live, r.Before.Live)/1024,
			one(r.Full.Goroutines, r.Before.Goroutines),
			one(r.Full.Files, r.Before.Files),
			r.ToldP50,
			r.ToldP99,
			r.AnswersP99,
			r.GoneIn,
			r.Before.Live/mb,
			r.Full.Live/mb,
			r.After.Live/mb,
			r.Before.Resident/mb,
			r.Full.Resident/mb,
			r.After.Resident/mb,
		)
	}
	t.Flush()
}
