package fleetlimit

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
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
}

const (
	maxConns    = 8192 // concurrent connections, twice those that 1024 workers keep idle
	idleTimeout = time.Minute
)

// Serve opens the socket of a server. The client's clock must be Now.
func Serve(client *Client, log *slog.Logger) (*Server, error) {
	socket, err := unixsocket.Listen("sluice-fleet-", "lease.sock")
	if err != nil {
		return nil, fmt.Errorf("fleet limit: %w", err)
	}
	return &Server{client, log, socket}, nil
}

// Socket is the path of the socket.
func (s *Server) Socket() string { return s.socket.Path() }

// Close removes the socket. Call it after Run has returned.
func (s *Server) Close() { s.socket.Close() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.socket.Serve(ctx, s.log, "accepting a worker that leases", maxConns, func(conn net.Conn) { s.serve(ctx, conn) })
}

func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 64<<10)
	for {
		_ = conn.SetDeadline(time.Now().Add(idleTimeout))
		if !lines.Scan() {
			return
		}
		answer, err := s.answer(ctx, strings.Fields(lines.Text()))
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

func (s *Server) answer(ctx context.Context, fields []string) (string, error) {
	if len(fields) < 6 {
		return "", errLine
	}
	numbers := make([]int64, 3)
	for i := range numbers {
		n, err := strconv.ParseInt(fields[2+i], 10, 64)
		if err != nil || n < 0 || n == 0 && i < 2 {
			return "", errLine
		}
		numbers[i] = n
	}
	key, err := hex.DecodeString(fields[5])
	if err != nil {
		return "", errLine
	}
	r := NewRule(fields[1], numbers[0], numbers[1], int(numbers[2]))
	switch rest := fields[6:]; fields[0] {
	case "lease":
		if len(rest) != 2 {
			return "", errLine
		}
		lanes, err := strconv.Atoi(rest[0])
		slots, err2 := strconv.Atoi(rest[1])
		if err = errors.Join(err, err2); err != nil {
			return "", errLine
		}
		l, err := s.client.Lease(ctx, r, string(key), Demand{Lanes: lanes, Slots: slots})
		if err != nil {
			return "", err
		}
		return l.line(), nil
	case "return":
		return "ok", s.returnSlots(ctx, r, string(key), rest)
	}
	return "", errLine
}

func (s *Server) returnSlots(ctx context.Context, r *Rule, key string, fields []string) error {
	var segments []Segment
	for ; len(fields) >= 4; fields = fields[4:] {
		lane, err := strconv.Atoi(fields[0])
		next, err2 := strconv.ParseFloat(fields[1], 64)
		end, err3 := strconv.ParseFloat(fields[2], 64)
		if errors.Join(err, err2, err3) != nil {
			return errLine
		}
		segments = append(segments, Segment{
			Lane: lane, Next: next, N: int(end-next) / r.lanes, Stride: r.lanes, ID: fields[3],
		})
	}
	return s.client.Return(ctx, r, key, segments)
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
