package browser

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// mostBytes is the most that the page of a sale and its assets may take on the wire, with response heads.
const mostBytes = 50_000

// goTo begins to load an address, and does not wait for anything.
func (b *tab) goTo(url string) {
	b.t.Helper()
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, _, _, err := page.Navigate(url).Do(ctx)
		return err
	}))
}

const painted = `performance.getEntriesByName("first-contentful-paint").length > 0`

// A page that is opened for the first time, on a phone.
func TestPageWeight(t *testing.T) {
	for name, openShop := range edges {
		t.Run(name, func(t *testing.T) {
			s := openShop(t)
			s.createSale("shoe", "The shoe", 10, time.Now().Add(time.Hour))
			t.Run("painted with the first answer", s.firstAnswer)
			t.Run("weight", s.weight)
		})
	}
}

// firstAnswer holds back all requests of the page except the first: the page is readable without them.
func (s *shop) firstAnswer(t *testing.T) {
	b := open(t, newPerson(t), "about:blank")
	var mu sync.Mutex
	held := 0
	chromedp.ListenTarget(b.ctx, func(event any) {
		e, paused := event.(*fetch.EventRequestPaused)
		if !paused {
			return
		}
		if e.ResourceType != network.ResourceTypeDocument {
			mu.Lock()
			defer mu.Unlock()
			held++
			return
		}
		go func() { // not in the listener, which would block itself
			_ = chromedp.Run(b.ctx, fetch.ContinueRequest(e.RequestID))
		}()
	})
	b.do(network.SetCacheDisabled(true), fetch.Enable())
	b.goTo(s.base + "/s/shoe")
	b.await("the first paint", painted)
	b.await(
		"the title",
		`document.querySelector("h1").getBoundingClientRect().height > 0 && document.querySelector("h1").textContent.includes("The shoe")`,
	)
	mu.Lock()
	defer mu.Unlock()
	if held == 0 {
		t.Error("the page sent no other request, so the test proves nothing")
	}
	b.do(fetch.Disable())
}

// weight prints the values of Lighthouse for a slow network and a processor with a quarter of this machine's speed.
func (s *shop) weight(t *testing.T) {
	b := open(t, newPerson(t), "about:blank")
	var mu sync.Mutex
	bytes, answers := 0.0, 0
	chromedp.ListenTarget(b.ctx, func(event any) {
		if e, done := event.(*network.EventLoadingFinished); done {
			mu.Lock()
			defer mu.Unlock()
			bytes, answers = bytes+e.EncodedDataLength, answers+1
		}
	})
	// Lighthouse's "slow 4G": a round trip of 150 ms, 1.6 Mbit/s.
	b.do(network.SetCacheDisabled(true), network.EmulateNetworkConditions(false, 150, 1.6e6/8, 750e3/8),
		emulation.SetCPUThrottlingRate(4),
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateScale(3)))
	b.goTo(s.page("shoe", "ann"))
	b.await("the page to be interactive",
		painted+` && document.readyState === "complete" && !document.getElementById("countdown").hidden`)
	var text string
	b.do(chromedp.Evaluate(figures, &text, awaited))
	var f struct{ First, Paint, Largest, Shift, Blocked, Complete, Blocking float64 }
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf(
		"%.1f kB in %d answers; first byte %.0f ms, first paint %.0f ms, largest paint %.0f ms, complete %.0f ms, blocked "+
			"%.0f ms, layout shift %.3f",
		bytes/1000,
		answers,
		f.First,
		f.Paint,
		f.Largest,
		f.Complete,
		f.Blocked,
		f.Shift,
	)
	if bytes > mostBytes || answers < 2 {
		t.Errorf("%.0f bytes in %d answers, want at most %d for the page and its script", bytes, answers, mostBytes)
	}
	if f.Blocking > 0 {
		t.Errorf("%.0f resources block the first paint", f.Blocking)
	}
	if f.Shift > 0.1 {
		t.Errorf("the layout shift is %.3f while the page loads, want at most 0.1", f.Shift)
	}
}

// figures are those of Lighthouse, in milliseconds since the click, from the browser's own records.
const figures = `new Promise((done) => {
	const entries = {};
	for (const type of ["largest-contentful-paint", "layout-shift", "longtask"]) {
		entries[type] = [];
		new PerformanceObserver((list) => entries[type].push(...list.getEntries())).observe({ type, buffered: true });
	}
	setTimeout(() => {
		const nav = performance.getEntriesByType("navigation")[0];
		done(JSON.stringify({
			first: nav.responseStart,
			paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
			largest: Math.max(0, ...entries["largest-contentful-paint"].map((e) => e.startTime)),
			complete: nav.loadEventStart,
			shift: entries["layout-shift"].reduce((sum, e) => sum + (e.hadRecentInput ? 0 : e.value), 0),
			blocked: entries.longtask.reduce((sum, e) => sum + Math.max(0, e.duration - 50), 0),
			blocking: performance.getEntriesByType("resource").filter((r) => r.renderBlockingStatus === "blocking").length,
		}));
	}, 300);
})`
