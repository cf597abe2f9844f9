package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// Both edges reach one backend over a Unix socket and another over TCP. During purchases the one behind the socket is
// killed and starts again at the same path: no order is lost, and the edges use it again.
func TestEdgesReachABackendOverASocket(t *testing.T) {
	t.Parallel()
	path := testenv.SocketPath(t)
	s := startStack(t, shape{backends: 2, workers: 1, socket: path})
	const stock = 3000
	s.createSale("s", stock)
	policy := policyFile(t, `return { rules = {} }`)
	tcp := s.bases[1]
	s.bases = nil
	for _, command := range []string{"gateway", "edge"} {
		listen := addr(t)
		launch(t, s.env, command, "--listen", listen, "--policy", policy, "--upstream", "unix:"+path, "--upstream", tcp)
		testenv.AwaitOK(t, "http://"+listen+"/healthz")
		s.bases = append(s.bases, "http://"+listen)
	}
	c := hammer(s, "s", 6)
	for range 3 {
		c.await(c.accepted.Load() + stock/10)
		s.backends[0].crash()
		testenv.AwaitOK(t, s.admins[0]+"/readyz")
	}
	c.check("s", stock)

	// Without the other backend, all orders are sent through the socket.
	s.createSale("late", 2)
	if code := s.backends[1].end(syscall.SIGTERM); code != 0 {
		t.Errorf("the backend behind TCP exits with %d", code)
	}
	for i, base := range s.bases {
		buyer := fmt.Sprint("late-", i)
		testenv.Eventually(t, time.Minute, "a purchase over the socket through "+base, func() bool {
			a, err := try("POST", base+"/v1/sales/late/orders", s.token(buyer), "")
			return err == nil && (a.Status == 202 || a.Code == "already-bought")
		})
	}
	if r := s.settle("late", 2); !r.Balanced || r.Left != 0 {
		t.Errorf("audit: %+v", r)
	}
	if code := s.backends[0].end(syscall.SIGTERM); code != 0 {
		t.Errorf("the backend behind the socket exits with %d", code)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left after SIGTERM: %v", err)
	}
}

// With one backend, at a socket, both edges sell; Redis and PostgreSQL are behind sockets as well. A second backend
// cannot take the path while the first one listens, and takes it after SIGTERM.
func TestBackendOwnsItsSocket(t *testing.T) {
	t.Parallel()
	for _, edge := range []string{"edge", "gateway"} {
		t.Run(edge, func(t *testing.T) {
			t.Parallel()
			path := testenv.SocketPath(t)
			s := startStack(t, shape{edge: edge, backends: 1, workers: 1, socket: path, sockets: true})
			s.createSale("s", 10)
			if a := s.buy("s", "ann"); a.Status != 202 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			second := []string{"backend", "--listen", "unix:" + path, "--admin", addr(t)}
			_, stderr, code := sluiceRun(t, s.env, second...)
			if code != 2 || !strings.Contains(stderr, "another process listens on "+path) {
				t.Errorf("a second backend: exit %d, %s", code, stderr)
			}
			if a := s.buy("s", "bob"); a.Status != 202 {
				t.Errorf("after that: %d %s", a.Status, a.Body)
			}
			if code := s.backends[0].end(syscall.SIGTERM); code != 0 {
				t.Errorf("the backend exits with %d", code)
			}
			s.admin = "http://" + second[len(second)-1]
			launch(t, s.env, second...)
			testenv.AwaitOK(t, s.admin+"/readyz")
			testenv.Eventually(t, time.Minute, "a purchase through the next backend", func() bool {
				a := s.buy("s", "cid")
				return a.Status == 202 || a.Code == "already-bought"
			})
			if r := s.settle("s", 3); !r.Balanced {
				t.Errorf("audit: %+v", r)
			}
		})
	}
}
