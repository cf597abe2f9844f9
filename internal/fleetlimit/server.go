package fleetlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"sluice/internal/unixsocket"
)

// Server leases for the workers of one nginx, over a Unix socket. lua/edge/sluice/fleet.lua is the other side. A worker
// sends lines of fields separated by spaces; HEX is the client's key in hexadecimal:
//
//	lease RULE COUNT PERIOD BURST HEX LANES SLOTS
//	return RULE COUNT PERIOD BURST HEX, and for each segment LANE NEXT END ID
//
// The answer to a lease is Redis, Further, 0 or 1 for Starting, and the fields of each segment in the order of the
// type. The answer to a return is "ok". If Redis cannot be used, both get "error".
type Server struct {
	client *Client
	log    *slog.Logger
	socket *unixsocket.Socket
	conns  int // served at a time
}

const (
	idleTimeout = time.Minute
	maxLine     = 8 << 10 // bytes; returning all segments of a full bucket takes less than half of this
)

// connsFor returns how many connections are served at a time. All users of the machine can connect, and the bound
// keeps them from using up the file descriptors of the process. A worker keeps at most four idle connections, and
// during a reload there are twice as many workers.
func connsFor(workers int) int { return max(512, 16*workers) }

// Serve opens the socket of a server for this number of workers. The client's clock must be Now.
func Serve(client *Client, log *slog.Logger, workers int) (*Server, error) {
	socket, err := unixsocket.Listen("sluice-fleet-", "lease.sock")
	if err != nil {
		return nil, fmt.Errorf("fleet limit: %w", err)
	}
	return &Server{client, log, socket, connsFor(workers)}, nil
}

// Socket is the path of the socket.
func (s *Server) Socket() string { return s.socket.Path() }

// Close removes the socket. Call it after Run has returned.
func (s *Server) Close() { s.socket.Close() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.socket.Serve(ctx, s.log, "accepting a worker that leases", s.conns, func(conn net.Conn) { s.serve(ctx, conn) })
}

func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	for {
		_ = conn.SetDeadline(time.Now().Add(idleTimeout))
		if !lines.Scan() {
			return
		}
		answer, err := s.answer(ctx, lines.Text())
		if err != nil {
			s.log.Debug("a lease for nginx has failed", "err", err)
			answer = "error"
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return
		}
	}
}

var errLine = errors.New("fleet limit: invalid line of a worker")

func (s *Server) answer(ctx context.Context, line string) (string, error) {
	var kind, rule, key string
	var count, period int64
	var burst int
	in := strings.NewReader(line)
	_, err := fmt.Fscanf(in, "%s %s %d %d %d %x", &kind, &rule, &count, &period, &burst, &key)
	if err != nil || count <= 0 || period <= 0 || burst < 0 {
		return "", errLine
	}
	r := NewRule(rule, count, period, burst)
	switch kind {
	case "lease":
		var d Demand
		if _, err := fmt.Fscan(in, &d.Lanes, &d.Slots); err != nil {
			return "", errLine
		}
		l, err := s.client.Lease(ctx, r, key, d)
		if err != nil {
			return "", err
		}
		s.client.warnStarted(s.log, l)
		return l.line(), nil
	case "return":
		var segments []Segment
		for in.Len() > 0 {
			segment, end := Segment{Stride: r.lanes}, 0.0
			if _, err := fmt.Fscan(in, &segment.Lane, &segment.Next, &end, &segment.ID); err != nil {
				return "", errLine
			}
			segment.N = int(end-segment.Next) / r.lanes
			segments = append(segments, segment)
		}
		return "ok", s.client.Return(ctx, r, key, segments)
	}
	return "", errLine
}

// line returns the answer to a worker.
func (l Lease) line() string {
	starting := 0
	if l.Starting {
		starting = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f %.0f %d", l.Redis, l.Further, starting)
	for _, s := range l.Segments {
		fmt.Fprintf(&b, " %.3f %.6f %.3f %.6f %d %d %.0f %d %s", s.Opens, s.OpensStep, s.Closes, s.ClosesStep, s.N, s.Lane,
			s.Next, s.Stride, s.ID)
	}
	return b.String()
}
