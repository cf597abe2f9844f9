package redisconn_test

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// A connection breaks somewhere in the replies to concurrent calls. Each call returns its own reply, or that Redis is
// not available.
func TestPipelineOverABrokenConnection(t *testing.T) {
	mini := miniredis.RunT(t)
	for cut := int64(0); cut < 700 && !t.Failed(); cut += 7 { // bytes of the first connection, which has some hundreds
		var broken atomic.Bool
		proxy := testenv.ProxyTCP(t, mini.Addr(), func(client, server net.Conn) {
			if broken.Swap(true) { // a later connection
				_, _ = io.Copy(client, server)
				return
			}
			_, _ = io.CopyN(client, server, cut)
		})
		client := connect(t, "redis://"+proxy)
		pipe, err := redisconn.NewPipeline(client)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for i := range 12 {
			running.Go(func() {
				want := "reply " + strconv.Itoa(i)
				got, err := pipe.Eval(t.Context(), "return ARGV[1]", []string{"k"}, want).Text()
				if got != want && (err == nil || !redisconn.Unavailable(err)) {
					t.Errorf("cut after %d bytes: %q, %v, want %q", cut, got, err, want)
				}
			})
		}
		running.Wait()
	}
}
