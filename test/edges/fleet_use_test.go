package edges

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

var fleetUse = flag.Duration(
	"fleet-use",
	0,
	"measure the use of a limit of the fleet for so long per row; see make fleet",
)

// TestFleetUse prints the share of a rate that two nginx edges and two gateways use at 1.6 times the rate, and how
// often they call Redis. It asserts the bound only: the other values depend on the machine.
func TestFleetUse(t *testing.T) {
	if *fleetUse == 0 {
		t.Skip("a measurement: make fleet")
	}
	fmt.Fprintln(os.Stdout,
		"| rate | clients | offered | used | decisions for a round trip |\n| --- | --- | --- | --- | --- |")
	// At 10/s a lease lasts for 24 s, and 30 s would measure mainly the first leases.
	for _, r := range []struct{ rate, burst, times int }{{10, 50, 10}, {1000, 200, 1}, {20000, 1000, 1}} {
		for _, clients := range []string{"even", "skewed", "moving"} {
			t.Run(fmt.Sprintf("%d %s", r.rate, clients), func(t *testing.T) {
				measureUse(t, r.rate, r.burst, clients, time.Duration(r.times)**fleetUse)
			})
		}
	}
}

func measureUse(t *testing.T, rate, burst int, clients string, length time.Duration) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	o := options{redis: server, upstream: serveHello(t), policy: fmt.Sprintf(`return { repeat_refusals = false, rules = {
		{ name = "all", key = "ip", rate = "%dr/s", burst = %d, scope = "fleet" } } }`, rate, burst)}
	edges := append(startBoth(t, o, nil), startBoth(t, o, nil)...)
	c := newCrowd(t)
	start := time.Now()
	weight := func(i int) float64 {
		switch clients {
		case "skewed":
			return 0.8 * math.Pow(0.2, float64(i))
		case "moving":
			return (1 + math.Cos(2*math.Pi*(time.Since(start).Seconds()/length.Seconds()-float64(i)/4))) / 4
		}
		return 0.25
	}
	const connections = 8
	var running sync.WaitGroup
	for i, e := range edges {
		for range connections {
			running.Go(func() {
				clients := newPipeline(c, e)
				defer clients.close()
				due, last := rand.Float64(), start
				for last.Before(start.Add(length)) {
					clients.send(int(due))
					due -= math.Floor(due)
					perSecond := 1.6 * float64(rate) * max(weight(i), 1e-6) / connections
					gap := time.Duration((1 - due) / perSecond * float64(time.Second))
					<-time.After(min(max(gap, 2*time.Millisecond), 20*time.Millisecond))
					now := time.Now()
					due += perSecond * now.Sub(last).Seconds()
					last = now
				}
			})
		}
	}
	running.Wait()
	passed := time.Since(start).Seconds()
	c.checkBound(float64(rate), float64(burst))
	trips := 0.0
	for _, e := range edges {
		for _, result := range []string{"granted", "refused", "late", "error"} {
			trips += metric(t, e, `sluice_edge_fleet_leases_total{result="`+result+`"}`)
		}
	}
	decisions := float64(len(c.admitted)) + float64(c.refused.Load()) + float64(c.failed.Load())
	// The burst is not part of the rate.
	used := (float64(len(c.admitted)) - float64(burst)) / (float64(rate) * passed)
	fmt.Fprintf(os.Stdout, "| %d/s | %s | %.2f of the rate | %.3f | %.0f |\n", rate, clients,
		decisions/(float64(rate)*passed), used, decisions/max(trips, 1))
}

// pipeline sends requests on one connection, several at a time, so that the load generator uses less processor time
// than the edges.
type pipeline struct {
	crowd    *crowd
	edge     *edge
	conn     net.Conn // nil: opened by the next request
	reader   *bufio.Reader
	used     time.Time // the last time
	requests string
}

// pipelined is the largest number of requests that wait for a response on one connection.
const pipelined = 64

func newPipeline(c *crowd, e *edge) *pipeline {
	return &pipeline{crowd: c, edge: e, requests: strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", pipelined)}
}

// send sends n requests and waits for the responses.
func (p *pipeline) send(n int) {
	for n > 0 {
		answered, err := p.exchange(min(n, pipelined))
		if n -= answered; err != nil {
			p.crowd.t.Errorf("%s: %v", p.edge.name, err)
			return
		}
	}
}

// exchange sends n requests, and returns the number of responses. It is lower than n if the edge ends the connection
// with one of them: the edge does not read the requests that follow.
func (p *pipeline) exchange(n int) (answered int, err error) {
	if p.conn != nil && time.Since(p.used) > 10*time.Second { // an edge closes idle connections
		_ = p.close()
	}
	if p.conn == nil {
		if p.conn, err = net.Dial("tcp", p.edge.address); err != nil {
			return 0, err
		}
		p.reader = bufio.NewReader(p.conn)
	}
	sent := time.Now()
	p.used = sent
	if _, err := io.WriteString(p.conn, p.requests[:len(p.requests)/pipelined*n]); err != nil {
		return 0, err
	}
	for range n {
		response, err := http.ReadResponse(p.reader, nil)
		if err != nil {
			return answered, err
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return answered, err
		}
		p.crowd.count(response.StatusCode, admittedRequest{sent, time.Now()})
		answered++
		if response.Close {
			return answered, p.close()
		}
	}
	return answered, nil
}

func (p *pipeline) close() error {
	conn := p.conn
	p.conn = nil
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// serveHello runs a backend that answers every request with 200. It reads only the end of a request.
func serveHello(t *testing.T) (address string) {
	return testenv.ServeTCP(t, func(conn net.Conn) {
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadSlice('\n')
			if err == nil && len(line) == len("\r\n") {
				_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			}
			if err != nil {
				return
			}
		}
	})
}
