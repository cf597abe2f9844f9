package chaos

import (
	"bufio"
	"net/http"
	"sync"
	"testing"
	"time"
)

// page is one that listens to a sale, as a browser's.
type page struct {
	mu      sync.Mutex
	heard   time.Time
	silence time.Duration
	over    bool
}

func openPage(t *testing.T, shop string) *page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", shop+"/v1/sales/"+mainSale+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := fromStreet("").Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("a page: %v, %v", resp, err)
	}
	p := &page{heard: time.Now()}
	go func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			p.hear(false)
		}
		p.hear(true)
	}()
	return p
}

func (p *page) hear(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence, p.heard, p.over = max(p.silence, time.Since(p.heard)), time.Now(), over
}

// longest is how long it has heard nothing.
func (p *page) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return p.silence
	}
	return max(p.silence, time.Since(p.heard))
}

func (p *page) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
