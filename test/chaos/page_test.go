package chaos

import (
	"bufio"
	"net/http"
	"sync"
	"testing"
	"time"
)

// page is an open event stream of a sale, as in a browser.
type page struct {
	mu      sync.Mutex
	latest  time.Time
	silence time.Duration
	over    bool
}

func openPage(t *testing.T, shop string) *page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", shop+"/v1/sales/"+mainSale+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientFrom("").Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("a page: %v, %v", resp, err)
	}
	p := &page{latest: time.Now()}
	go func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			p.receive(false)
		}
		p.receive(true)
	}()
	return p
}

func (p *page) receive(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence, p.latest, p.over = max(p.silence, time.Since(p.latest)), time.Now(), over
}

// longest returns the longest time without an event.
func (p *page) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return p.silence
	}
	return max(p.silence, time.Since(p.latest))
}

func (p *page) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
