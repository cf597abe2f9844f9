package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// The log is synthetic: ten minutes of a sale, the same for the same number of lines. One request in four is a
// purchase, one in fifty waits for seconds; of 50,000 addresses and 40,000 buyers a few send many requests.
const (
	recordedSpan      = 10 * time.Minute
	recordedAddresses = 50_000
	recordedBuyers    = 40_000
)

var recordedFrom = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// asked is one request of the log.
type asked struct {
	end, took       time.Duration // end: since recordedFrom
	address, buyer  int
	purchase, phone bool
}

// writeLog writes a log as an edge does, in the order in which requests end. line writes one of its lines.
func writeLog(path string, lines int, line func(asked, io.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same log each time
	for i := range lines {
		line(draw(rnd, i, lines), w)
	}
	return errors.Join(w.Flush(), f.Close())
}

// draw returns the request that ends as the i-th of all lines.
func draw(rnd *rand.Rand, i, lines int) asked {
	took := time.Duration(rnd.ExpFloat64() * float64(5*time.Millisecond))
	if rnd.IntN(50) == 0 {
		took = time.Duration(rnd.Int64N(int64(10 * time.Second)))
	}
	end := (float64(i) + rnd.Float64()) / float64(lines) * float64(recordedSpan)
	return asked{end: time.Duration(end), took: took, purchase: rnd.IntN(4) == 0,
		address: often(rnd, recordedAddresses), buyer: often(rnd, recordedBuyers), phone: rnd.IntN(2) == 0}
}

// often returns a number below n; small ones are more frequent.
func often(rnd *rand.Rand, n int) int {
	share := rnd.Float64()
	return int(share * share * share * float64(n))
}

// request returns "METHOD", "PATH", the status and the buyer's name.
func (a asked) request() (method, path string, status int, buyer string) {
	if a.purchase {
		return "POST", "/v1/sales/shoe/orders", 202, fmt.Sprintf("buyer-%06d", a.buyer)
	}
	return "GET", "/v1/sales/shoe", 200, ""
}

func (a asked) client() string { return fmt.Sprintf("10.%d.%d.7", a.address>>8, a.address&255) }

func (a asked) browser() string {
	if a.phone {
		return "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
			"Version/17.0 Mobile/15E148 Safari/604.1"
	}
	return "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"
}

// json is a line as nginx/conf.d/30-log.conf has it.
func (a asked) json(w io.Writer) {
	method, path, status, buyer := a.request()
	took := a.took.Seconds()
	fmt.Fprintf(w, `{"time":%.3f,"client":"%s","buyer":"%s","method":"%s","path":"%s","status":%d,"verdict":"allow",`+
		`"rule":"ip","remaining":"39","shadow":"","reason":"","request_id":"%032x","bytes":512,"seconds":%.3f,`+
		`"upstream":"127.0.0.1:8081","upstream_status":"%d","upstream_seconds":"%.3f","worker":1234,"agent":"%s"}`+"\n",
		float64(recordedFrom.Add(a.end).UnixMilli())/1000, a.client(), buyer, method, path, status,
		uint64(a.end), took, status, took, a.browser())
}

func (a asked) combined(w io.Writer) {
	method, path, status, _ := a.request()
	fmt.Fprintf(w, "%s - - [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"%s\"\n",
		a.client(), recordedFrom.Add(a.end).Format("02/Jan/2006:15:04:05 -0700"), method, path, status, a.browser())
}
