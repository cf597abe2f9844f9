package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// opener is a process that opens and holds event streams, because one process may not have enough file descriptors
// for all. It reports the result, then executes the lines on its input, and closes all streams when its input ends.
//
//	mark       starts counting events
//	await N    waits until N events were received since, or for a minute, and reports when
type opener struct {
	addrs       []string
	path        string // of the stream
	first, n    int    // buyers
	concurrency int

	mu       sync.Mutex
	open     []net.Conn
	received []time.Time // of each event since the last mark
	ended    int         // streams that ended unexpectedly
}

// opened is the result of opening streams.
type opened struct {
	Open     int    `json:"open"`
	Refused  int    `json:"refused"`         // with 503 and Retry-After
	AfterMin int    `json:"after_min"`       // the shortest and longest Retry-After of these, in seconds
	AfterMax int    `json:"after_max"`       //
	Failed   int    `json:"failed"`          // anything else
	Error    string `json:"error,omitempty"` // the first of these
}

// receipts are the times at which events were received, in nanoseconds since 1970, ascending.
type receipts struct {
	At    []int64 `json:"at"`
	Ended int     `json:"ended"` // streams that ended unexpectedly
}

// perSource is the number of connections from one address of this machine: an address has a limited number of ports.
const perSource = 4000

func openMain(args []string) int {
	flags := flag.NewFlagSet("opener", flag.ContinueOnError)
	addrs := flags.String("addrs", "", "comma-separated")
	o := &opener{}
	flags.StringVar(&o.path, "path", "", "of the stream")
	flags.IntVar(&o.first, "first", 0, "first buyer")
	flags.IntVar(&o.n, "n", 0, "buyers")
	flags.IntVar(&o.concurrency, "concurrency", 32, "concurrent connects")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	o.addrs = strings.Split(*addrs, ",")
	err := o.run(os.Stdin, json.NewEncoder(os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench opener:", err)
		return 1
	}
	return 0
}

func (o *opener) run(in io.Reader, out *json.Encoder) error {
	if err := out.Encode(o.openAll()); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var err error
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "mark":
			o.mu.Lock()
			o.received = nil
			o.mu.Unlock()
			err = out.Encode(receipts{})
		case "await":
			n, _ := strconv.Atoi(rest)
			err = out.Encode(o.await(n))
		}
		if err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.open {
		_ = c.Close()
	}
	return nil
}

func (o *opener) openAll() opened {
	var sum opened
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan int)
	for range o.concurrency {
		wg.Go(func() {
			for i := range next {
				after, err := o.openOne(i)
				mu.Lock()
				switch {
				case err != nil:
					sum.Failed++
					if sum.Error == "" {
						sum.Error = err.Error()
					}
				case after > 0:
					if sum.Refused++; sum.Refused == 1 || after < sum.AfterMin {
						sum.AfterMin = after
					}
					sum.AfterMax = max(sum.AfterMax, after)
				default:
					sum.Open++
				}
				mu.Unlock()
			}
		})
	}
	for i := range o.n {
		next <- o.first + i
	}
	close(next)
	wg.Wait()
	return sum
}

// openOne opens a buyer's stream and retries while the backend is busy. after is the Retry-After of a rejection in
// seconds; 0: the stream is open.
func (o *opener) openOne(buyer int) (after int, err error) {
	for try := range 5 {
		var busy bool
		if after, busy, err = o.attempt(buyer); !busy {
			return after, err
		}
		time.Sleep(time.Duration(try+1) * 500 * time.Millisecond)
	}
	return after, err
}

func (o *opener) attempt(buyer int) (after int, busy bool, err error) {
	raw, err := key.Sign(buyerName(buyer), time.Hour)
	if err != nil {
		return 0, false, err
	}
	source := buyer / perSource
	from := &net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+source/200), byte(1+source%200))},
		Timeout:   30 * time.Second,
	}
	c, err := from.DialContext(context.Background(), "tcp", o.addrs[buyer%len(o.addrs)])
	if err != nil {
		return 0, true, err
	}
	keep := false
	defer func() {
		if !keep {
			_ = c.Close()
		}
	}()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintf(c,
		"GET %s HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n",
		o.path, raw); err != nil {
		return 0, true, err
	}
	lines := bufio.NewReaderSize(c, 512)
	resp, err := http.ReadResponse(lines, nil) //nolint:bodyclose // closed with its connection
	if err != nil {
		return 0, true, err
	}
	if resp.StatusCode == http.StatusOK {
		keep = true
		_ = c.SetDeadline(time.Time{})
		o.mu.Lock()
		o.open = append(o.open, c)
		o.mu.Unlock()
		go o.listen(resp.Body)
		return 0, false, nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, true, err
	}
	after, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusServiceUnavailable || after < 1 || !strings.Contains(string(body), "Too many pages") {
		return 0, resp.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("%s, Retry-After %d: %.200s",
			resp.Status, after, body)
	}
	return after, false, nil
}

// listen records when events arrive.
func (o *opener) listen(body io.Reader) {
	lines := bufio.NewReaderSize(body, 512)
	for {
		line, err := lines.ReadString('\n')
		at := time.Now()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				o.mu.Lock()
				o.ended++
				o.mu.Unlock()
			}
			return
		}
		if strings.HasPrefix(line, "data:") {
			o.mu.Lock()
			o.received = append(o.received, at)
			o.mu.Unlock()
		}
	}
}

func (o *opener) await(n int) receipts {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		if len(o.received) >= n || time.Now().After(deadline) {
			h := receipts{At: make([]int64, len(o.received)), Ended: o.ended}
			for i, at := range o.received {
				h.At[i] = at.UnixNano()
			}
			o.mu.Unlock()
			slices.Sort(h.At)
			return h
		}
		o.mu.Unlock()
	}
}
