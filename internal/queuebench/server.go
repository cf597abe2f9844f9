package queuebench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
)

// server is the Redis server of a run.
type server struct {
	client redisconn.Client
	dir    string // data directory; "" when the run did not start the server
	port   int
	cmd    *exec.Cmd     // nil when the run did not start the server
	ended  chan struct{} // nil when no server runs
}

// ErrNotEmpty reports a Redis database that holds keys. A run empties its database.
var ErrNotEmpty = errors.New("the Redis database is not empty and the run would empty it: use a database without keys")

// A Redis that does not answer must not delay an interrupt.
const openTimeout, closeTimeout = 5 * time.Second, 5 * time.Second

// openServer connects to the empty Redis at url. Without a url it starts one with appendfsync everysec.
func openServer(ctx context.Context, url string) (*server, error) {
	if url != "" {
		client, err := connect(url)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		s := &server{client: client}
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		n, err := s.client.DBSize(ctx).Result()
		if err == nil && n > 0 {
			err = ErrNotEmpty
		}
		if err != nil {
			_ = s.client.Close()
			return nil, err
		}
		return s, nil
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New(
			"redis-server is not installed: install it (Debian: apt-get install redis-server) or use --redis",
		)
	}
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if s.port, err = freePort(ctx); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	if s.client, err = connect(s.url()); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func connect(url string) (redisconn.Client, error) {
	return redisconn.Open(url, redisconn.Blocking(2*buyers), redisconn.LongTimeouts)
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) url() string { return "redis://127.0.0.1:" + strconv.Itoa(s.port) }

func (s *server) start(ctx context.Context) error {
	s.cmd = exec.Command("redis-server", "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	s.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(s.cmd, s.ended)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	look, err := redisconn.Open(s.url(), redisconn.Once)
	if err != nil {
		return err
	}
	defer look.Close()
	for look.Ping(ctx).Err() != nil { // Redis answers when it has read its append-only file
		select {
		case <-ctx.Done():
			return errors.New("redis-server did not answer within 30 s")
		case <-s.ended:
			return errors.New("redis-server exited at start")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// crash kills the server and starts it again on its data directory. It returns false when the run did not start it.
//
// It waits until Redis has written its append-only file, because a kill before that loses messages of every driver.
func (s *server) crash(ctx context.Context) (bool, error) {
	if s.cmd == nil {
		return false, nil
	}
	if _, err := s.infoOfWritten(ctx); err != nil {
		return false, fmt.Errorf("redis-server: %w", err)
	}
	s.end()
	return true, s.start(ctx)
}

// infoOfWritten returns the sections cpu and persistence of INFO when Redis has written its append-only file, if it has
// one. With appendfsync everysec, Redis postpones that for up to two seconds while the disk is busy.
func (s *server) infoOfWritten(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		info, err := s.client.Info(ctx, "cpu", "persistence").Result()
		if err != nil || !strings.Contains(info, "aof_buffer_length:") || strings.Contains(info, "aof_buffer_length:0\r") {
			return info, err
		}
		loop.Sleep(ctx, 20*time.Millisecond)
	}
}

func (s *server) end() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.ended = nil
}

func (s *server) close() {
	if s.client != nil {
		if s.cmd == nil {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			_ = s.client.FlushDB(ctx).Err() // the database was empty before the run
			cancel()
		}
		_ = s.client.Close()
	}
	if s.cmd != nil && s.ended != nil {
		s.end()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
