package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"sluice/test/testenv"
)

// link is the way of one process to one store, and can be disturbed. One disturbance at a time.
type link struct {
	name  string
	proxy *toxiproxy.Proxy
}

// newLink opens a proxy on a free port. Its API server has no listener; it only holds the proxies' settings.
func newLink(t testenv.TB, name, upstream string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{name: name, proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)}
	if err := l.proxy.Start(); err != nil {
		t.Fatalf("chaos: link %s: %v", name, err)
	}
	t.Cleanup(l.proxy.Stop)
	return l
}

func (l *link) addr() string { return l.proxy.Listen }

// disturb applies f and returns a function that undoes it.
func (l *link) disturb(f Fault) (undo func() error, err error) {
	var toxic string
	switch f.Kind {
	case LinkCut:
		l.proxy.Stop()
		return l.proxy.Start, nil
	case RepliesLost:
		toxic = `"stream":"downstream","type":"timeout","attributes":{"timeout":0}`
	case RequestsLost:
		toxic = `"stream":"upstream","type":"timeout","attributes":{"timeout":0}`
	case LinkSlow:
		toxic = fmt.Sprintf(
			`"stream":"downstream","type":"latency","attributes":{"latency":%d,"jitter":%d}`,
			f.Dose,
			f.Dose/2,
		)
	case LinkTorn:
		toxic = fmt.Sprintf(`"stream":"downstream","type":"limit_data","attributes":{"bytes":%d}`, f.Dose)
	default:
		return nil, fmt.Errorf("chaos: %s is no fault of a link", f.Kind)
	}
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"fault",` + toxic + `}`)); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return l.proxy.Toxics.RemoveToxic(ctx, "fault")
	}, nil
}
