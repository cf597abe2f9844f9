package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"sluice/test/testenv"
)

// link is the connection of one process to one store, on which faults can be injected, one at a time. It has a proxy
// for each server of the store.
type link struct {
	name    string
	proxies []*toxiproxy.Proxy
}

// newLink opens a proxy for each server on a free port. The proxies' API server has no listener; it only holds their
// settings.
func newLink(t testenv.TB, name string, upstreams ...string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{name: name}
	for _, upstream := range upstreams {
		proxy := toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)
		if err := proxy.Start(); err != nil {
			t.Fatalf("chaos: link %s: %v", name, err)
		}
		t.Cleanup(proxy.Stop)
		l.proxies = append(l.proxies, proxy)
	}
	return l
}

// newClusterLink is newLink to the nodes of a Redis Cluster: replies name the proxies instead of the nodes.
func newClusterLink(t testenv.TB, name string, nodes ...string) *link {
	t.Helper()
	l := newLink(t, name, nodes...)
	renamed := map[string]string{}
	for i, node := range nodes {
		renamed[node] = l.proxies[i].Listen
		if len(renamed[node]) != len(addressForm)-1 || len(node) != len(addressForm)-1 {
			t.Fatalf("chaos: link %s: %s and %s do not have the form %s", name, node, renamed[node], addressForm)
		}
	}
	registerAddresses()
	attributes, err := json.Marshal(map[string]any{"addresses": renamed})
	if err != nil {
		t.Fatalf("chaos: link %s: %v", name, err)
	}
	for _, proxy := range l.proxies {
		toxic := `"stream":"downstream","type":"addresses","attributes":` + string(attributes)
		if err := addToxic(proxy, "addresses", toxic); err != nil {
			t.Fatalf("chaos: link %s: %v", name, err)
		}
	}
	return l
}

func addToxic(proxy *toxiproxy.Proxy, name, toxic string) error {
	_, err := proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"` + name + `",` + toxic + `}`))
	return err
}

func (l *link) addrs() (all []string) {
	for _, p := range l.proxies {
		all = append(all, p.Listen)
	}
	return all
}

// disturb applies f and returns a function that undoes it.
func (l *link) disturb(f Fault) (undo func() error, err error) {
	proxies := l.proxies
	if f.Node > 0 {
		proxies = proxies[min(f.Node, len(proxies))-1:][:1]
	}
	var undone []func() error
	undo = func() error {
		var failed []error
		for _, one := range undone {
			failed = append(failed, one())
		}
		return errors.Join(failed...)
	}
	for _, proxy := range proxies {
		one, err := disturb(proxy, f)
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		undone = append(undone, one)
	}
	return undo, nil
}

func disturb(proxy *toxiproxy.Proxy, f Fault) (undo func() error, err error) {
	var toxic string
	switch f.Kind {
	case LinkCut:
		proxy.Stop()
		return proxy.Start, nil
	case RepliesLost:
		toxic = `"stream":"downstream","type":"timeout","attributes":{"timeout":0}`
	case RequestsLost:
		toxic = `"stream":"upstream","type":"timeout","attributes":{"timeout":0}`
	case LinkSlow:
		toxic = fmt.Sprintf(`"stream":"downstream","type":"latency","attributes":{"latency":%d,"jitter":%d}`, f.Dose,
			f.Dose/2)
	case LinkTorn:
		toxic = fmt.Sprintf(`"stream":"downstream","type":"limit_data","attributes":{"bytes":%d}`, f.Dose)
	default:
		return nil, fmt.Errorf("chaos: %s is not a fault of a link", f.Kind)
	}
	if err := addToxic(proxy, "fault", toxic); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return proxy.Toxics.RemoveToxic(ctx, "fault")
	}, nil
}
