package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/backend/event"
	"sluice/backend/keyspace"
	"sluice/backend/order"
	"sluice/internal/testenv"
)

// openKind is one of the two streams that a browser holds open.
type openKind struct {
	name, path  string
	open, limit string // metrics
	// happen makes something happen that n of the open streams are told of; 0: all.
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

// backendFigures are what a backend says of itself.
type backendFigures struct {
	Streams    int64 `json:"streams"`
	Goroutines int64 `json:"goroutines"`
	Files      int64 `json:"files"`
	Resident   int64 `json:"resident_bytes"`
	limit      int64
}

const (
	openedSale   = "open"
	toldOrders   = 2000 // orders that are written while all pages are open
	openAnswers  = 200  // other requests meanwhile
	perOpener    = 8000 // streams of one process
	goneWithin   = 90 * time.Second
	slackRoutine = 25 // goroutines that come and go by themselves
)

// openHouse is the backends, and what they stand on.
type openHouse struct {
	stage      *stage
	bin, where string
	env        []string
	addrs      []string // of the API
	admins     []string
	store      *order.Store
	waker      *event.Waker
	ids        *ids
	wrote      int
}

// openPages holds as many event streams open as the backends let, and some more: what one costs, that who comes in vain is told to ask instead, that a change
// is told to all, and that nothing is left when they have gone.
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
		{"orders of a buyer", "/v1/me/events", "sluice_push_pages", "sluice_push_pages_limit", writeSome, toldOrders},
		{"a sale", "/v1/sales/" + openedSale + "/events", "sluice_api_event_streams", "sluice_api_event_streams_limit", restockOne, 0},
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
	h.env = []string{"SLUICE_TOKEN_SECRET=" + secret, "SLUICE_ADMIN_TOKEN=" + secret, "SLUICE_REDIS_URL=" + server.URL, "SLUICE_DATABASE_URL=" + database.URL}
	if err := h.addBackend(ctx); err != nil {
		return nil, err
	}
	for _, id := range []string{saleID, openedSale} {
		cmd := exec.CommandContext(ctx, h.bin, "sale", "create", "--id", id, "--title", "Bench", "--stock", "100000", "--price", "99.90EUR", "--opens", "-1s", "--server", "http://"+h.admins[0])
		cmd.Env, cmd.Dir = append(os.Environ(), h.env...), s.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("sale create: %w\n%s", err, out)
		}
	}
	if h.store, err = order.Open(ctx, database.URL); err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = h.store.Close() })
	h.waker = event.NewWaker(server.Client(), keyspace.Space{})
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
	return errors.Join(b.await(listen), b.await(admin))
}

// writeSome writes orders of the first buyers, as a worker does.
func writeSome(ctx context.Context, h *openHouse) error {
	orders := newOrders(h.ids, 0, toldOrders)
	for i := range orders { // a buyer's next one, in each round
		orders[i].Nth, orders[i].Serial = h.wrote+1, int64(h.wrote*toldOrders+i+1)
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
	if r.Before, err = h.figures(ctx, k); err != nil {
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
		return r, fmt.Errorf("of %d that came, %d are open, %d were told to ask instead, and %d failed (%s); there is room for %d",
			r.Asked, a.Open, a.Refused, a.Failed, a.Error, r.Before.limit)
	}
	if r.AnswersP99, err = h.otherAnswers(ctx); err != nil {
		return r, err
	}
	if err := crowd.told(ctx, k, h, &r); err != nil {
		return r, err
	}
	if r.Full, err = h.figures(ctx, k); err != nil {
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
		if r.After.Streams == 0 && r.After.Goroutines <= r.Before.Goroutines+slackRoutine && r.After.Files <= r.Before.Files+slackRoutine {
			break
		}
		if time.Since(begin) > goneWithin {
			return r, fmt.Errorf("after %v there are still %+v; before anybody came: %+v", goneWithin, r.After, r.Before)
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.GoneIn = time.Since(begin).Seconds()
	fmt.Fprintf(os.Stderr, "%s: %d open and %d told to ask instead after %.1f s; all gone in %.1f s\n", k.name, r.Answers.Open, r.Answers.Refused, r.OpenedIn, r.GoneIn)
	return r, nil
}

// otherAnswers asks for the sale, each time over a new connection, while all streams are open, and returns the 99th percentile in ms.
func (h *openHouse) otherAnswers(ctx context.Context) (float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	var took []float64
	for i := range openAnswers {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.addrs[i%len(h.addrs)]+"/v1/sales/"+openedSale, nil)
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

// figures sums up what the backends say.
func (h *openHouse) figures(ctx context.Context, k openKind) (sum backendFigures, err error) {
	for _, admin := range h.admins {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
		if err != nil {
			return sum, err
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return sum, err
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			n, _ := strconv.ParseFloat(value, 64)
			switch name {
			case k.open:
				sum.Streams += int64(n)
			case k.limit:
				sum.limit += int64(n)
			case "go_goroutines":
				sum.Goroutines += int64(n)
			case "process_open_fds":
				sum.Files += int64(n)
			case "process_resident_memory_bytes":
				sum.Resident += int64(n)
			}
		}
		_ = resp.Body.Close()
		if err := lines.Err(); err != nil {
			return sum, err
		}
	}
	if sum.limit == 0 {
		return sum, fmt.Errorf("the backends do not say %s", k.limit)
	}
	return sum, nil
}

// crowd is the processes that hold streams open.
type crowd struct {
	openers []*openerProcess
	sum     opened
}

type openerProcess struct {
	open int // streams
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  string
}

func (h *openHouse) startCrowd(ctx context.Context, k openKind, n int) (*crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crowd{}
	for first := 0; first < n; first += perOpener {
		o := &openerProcess{log: filepath.Join(h.stage.TempDir(), "opener.log")}
		o.cmd = exec.CommandContext(ctx, self, "opener", "--addrs", strings.Join(h.addrs, ","), "--path", k.path,
			"--first", strconv.Itoa(first), "--n", strconv.Itoa(min(perOpener, n-first)))
		o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(o.log)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		o.cmd.Stderr = log
		if o.in, err = o.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		out, err := o.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		o.out = json.NewDecoder(out)
		if err := o.cmd.Start(); err != nil {
			return nil, err
		}
		c.openers = append(c.openers, o)
	}
	for _, o := range c.openers {
		var one opened
		if err := o.answer(&one); err != nil {
			return nil, err
		}
		if one.Refused > 0 && (c.sum.Refused == 0 || one.AfterMin < c.sum.AfterMin) {
			c.sum.AfterMin = one.AfterMin
		}
		o.open = one.Open
		c.sum.AfterMax = max(c.sum.AfterMax, one.AfterMax)
		c.sum.Open, c.sum.Refused, c.sum.Failed = c.sum.Open+one.Open, c.sum.Refused+one.Refused, c.sum.Failed+one.Failed
		if c.sum.Error == "" {
			c.sum.Error = one.Error
		}
	}
	return c, nil
}

func (o *openerProcess) answer(to any) error {
	if err := o.out.Decode(to); err != nil {
		said, _ := os.ReadFile(o.log)
		return fmt.Errorf("an opener ended: %w\n%s", err, said)
	}
	return nil
}

func (o *openerProcess) ask(line string, to any) error {
	if _, err := io.WriteString(o.in, line+"\n"); err != nil {
		return err
	}
	return o.answer(to)
}

// told makes something happen, and finds out when who has to be told was told.
func (c *crowd) told(ctx context.Context, k openKind, h *openHouse, r *openResult) error {
	var ignored hearing
	for _, o := range c.openers {
		if err := o.ask("mark", &ignored); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := k.happen(ctx, h); err != nil {
		return err
	}
	done := time.Now() // it is committed; a stream may have heard of it a little earlier
	want := k.tells
	if want == 0 {
		want = r.Answers.Open
	}
	var all []float64
	for i, o := range c.openers { // those that are told are the first ones, or all
		mine := 0
		switch {
		case k.tells == 0:
			mine = o.open
		case i == 0:
			mine = k.tells
		}
		var heard hearing
		if err := o.ask("heard "+strconv.Itoa(mine), &heard); err != nil {
			return err
		}
		if heard.Ended > 0 {
			return fmt.Errorf("%d streams ended by themselves", heard.Ended)
		}
		for _, at := range heard.At {
			all = append(all, max(0, float64(at-done.UnixNano())/1e6))
		}
	}
	if len(all) < want {
		return fmt.Errorf("%d streams heard of it, want %d, %v after it began", len(all), want, time.Since(begin).Round(time.Second))
	}
	slices.Sort(all)
	r.Told, r.ToldP50, r.ToldP99 = len(all), quantile(all, 0.5), quantile(all, 0.99)
	return nil
}

// leave closes all streams, without a word.
func (c *crowd) leave() error {
	var all error
	for _, o := range c.openers {
		all = errors.Join(all, o.in.Close(), o.cmd.Wait())
	}
	return all
}

func printOpen(w io.Writer, results []openResult) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stream\tround\tbackends\tcame\topen\ttold to ask\tretry after\tfor one: kB\tgoroutines\tfiles\ttold of a change p50\tp99\tother answers p99\tgone in\tresident before, full, after\t")
	for _, r := range results {
		one := func(full, before int64) float64 { return float64(full-before) / float64(max(1, r.Answers.Open)) }
		const mb = 1 << 20
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%d..%d s\t%.1f\t%.2f\t%.2f\t%.0f ms\t%.0f ms\t%.1f ms\t%.0f s\t%d, %d, %d MB\t\n",
			r.Kind, r.Round, r.Backends, number(float64(r.Asked)), number(float64(r.Answers.Open)), number(float64(r.Answers.Refused)), r.Answers.AfterMin, r.Answers.AfterMax,
			one(r.Full.Resident, r.Before.Resident)/1024, one(r.Full.Goroutines, r.Before.Goroutines), one(r.Full.Files, r.Before.Files),
			r.ToldP50, r.ToldP99, r.AnswersP99, r.GoneIn, r.Before.Resident/mb, r.Full.Resident/mb, r.After.Resident/mb)
	}
	t.Flush()
}
