package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"sluice/test/testenv"
)

// chrome finds Chromium. It prefers the headless shell, which is a separate package in Debian: it renders the same
// pages without the browser around them, and takes a third of the processor time.
func chrome(t testing.TB) string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return testenv.Find(t, "chromium-headless-shell", "chromium-headless-shell")
}

// browser is one Chromium for all tests, started by the first.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func startBrowser(t testing.TB) {
	exe := chrome(t)
	dir, err := os.MkdirTemp("", "sluice-chromium-")
	if err != nil {
		browser.err = err
		return
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(exe), chromedp.NoSandbox,
		chromedp.UserDataDir(dir), chromedp.Flag("lang", "en-GB"))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	browser.err = chromedp.Run(ctx)
	browser.ctx = ctx //nolint:fatcontext // once, for all tests
	browser.stop = func() {
		_ = chromedp.Cancel(ctx) // waits for its end, so that its directory can be removed
		cancel()
		stop()
		_ = os.RemoveAll(dir)
	}
}

// person is a browser profile: its tabs share storage with each other only.
type person cdp.BrowserContextID

func newPerson(t testing.TB) person {
	t.Helper()
	browser.once.Do(func() { startBrowser(t) })
	if browser.err != nil {
		t.Fatalf("start Chromium: %v", browser.err)
	}
	ctx := cdp.WithExecutor(browser.ctx, chromedp.FromContext(browser.ctx).Browser)
	id, err := target.CreateBrowserContext().Do(ctx)
	if err != nil {
		t.Fatalf("a new browser profile: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // Chromium may never respond; the end of the tests kills it
		defer cancel()
		_ = target.DisposeBrowserContext(id).Do(ctx)
	})
	return person(id)
}

// newTab opens an empty window in the profile.
func (p person) newTab(t testing.TB) context.Context {
	t.Helper()
	all := cdp.WithExecutor(browser.ctx, chromedp.FromContext(browser.ctx).Browser)
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(cdp.BrowserContextID(p)).WithNewWindow(true).Do(all)
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithTargetID(id))
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil { // the context of this first call bounds the lifetime of the tab
		t.Fatalf("open a tab: %v", err)
	}
	return ctx
}

// tab is one open page.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu   sync.Mutex
	said []string // errors of the page
	sent []string // requests, "METHOD path"
}

// slowTimeout bounds each wait, for a slow and busy machine.
const slowTimeout = 30 * time.Second

// open opens an address in a new tab of a profile.
func open(t testing.TB, who person, url string) *tab {
	t.Helper()
	return openWith(t, who, url, "")
}

// openAt is open in a browser with a wrong clock.
func openAt(t testing.TB, who person, url string, wrong time.Duration) *tab {
	t.Helper()
	return openWith(
		t,
		who,
		url,
		fmt.Sprintf(
			`const Right = Date; Date = class extends Right { constructor(...a) { a.length ? super(...a) : super(Right.now() + %[1]d); } static now() { return Right.now() + %[1]d; } };`,
			wrong.Milliseconds(),
		),
	)
}

// openWith is open with a script that runs before those of the page.
func openWith(t testing.TB, who person, url, script string) *tab {
	t.Helper()
	b := &tab{t: t, ctx: who.newTab(t)}
	chromedp.ListenTarget(b.ctx, b.note)
	b.do(
		network.Enable(),
		runtime.Enable(),
		chromedp.EmulateViewport(1000, 800),
		chromedp.ActionFunc(func(ctx context.Context) error {
			if script == "" {
				return nil
			}
			_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
			return err
		}),
		chromedp.Navigate(url),
	)
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			b.said = append(b.said, "console.error")
		}
	case *network.EventRequestWillBeSent:
		b.sent = append(b.sent, e.Request.Method+" "+pathOf(e.Request.URL))
	}
}

func pathOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	_, rest, _ = strings.Cut(rest, "/")
	return "/" + rest
}

// clean fails the test if the page has reported errors.
func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.said {
		b.t.Errorf("the page: %s", s)
	}
}

func (b *tab) count(request string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.sent {
		if s == request {
			n++
		}
	}
	return n
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, slowTimeout)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v\n%s", err, b.seen())
	}
}

// seen returns the text of the page, for the report of a failure.
func (b *tab) seen() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var text string
	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &text)); err != nil {
		return "(nothing: " + err.Error() + ")"
	}
	return text
}

// awaited has Evaluate wait for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

func (b *tab) eval(script string) string {
	b.t.Helper()
	var out string
	b.do(chromedp.Evaluate(`String(`+script+`)`, &out))
	return out
}

// click clicks the element that the script returns, once it exists. It is one script, because the page may be rendered
// again at any time.
func (b *tab) click(element string) {
	b.t.Helper()
	b.await(element, `((e) => e && (e.click(), true))(`+element+`)`)
}

// await waits until the script returns true in the page. It polls from the test, because the page's own policy
// forbids what chromedp.Poll does.
func (b *tab) await(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, slowTimeout)
	defer cancel()
	for {
		var is bool
		err := chromedp.Run(ctx, chromedp.Evaluate(`Boolean(`+script+`)`, &is))
		if is {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("waited for %s (%v); the page shows\n%s", what, err, b.seen())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// says waits until an element has this text.
func (b *tab) says(id, words string) {
	b.t.Helper()
	b.await(id+" to say "+words, `document.getElementById(`+quote(id)+`)?.textContent.includes(`+quote(words)+`)`)
}

// record makes the page keep the texts of an element, for showed.
func (b *tab) record(id string) {
	b.t.Helper()
	b.eval(`(() => {
		const element = document.getElementById(` + quote(id) + `), texts = (window.texts ??= {})[element.id] = [];
		new MutationObserver(() => texts.push(element.textContent)).observe(element, { childList: true, characterData: true, subtree: true });
	})()`)
}

// showed waits until an element has had this text since record. The page may have replaced the text.
func (b *tab) showed(id, words string) {
	b.t.Helper()
	b.await(id+" to have shown "+words, `texts[`+quote(id)+`].some((text) => text.includes(`+quote(words)+`))`)
}

// orderIs waits until the newest order has this status.
func (b *tab) orderIs(status string) {
	b.t.Helper()
	b.await("an order that is "+status, `document.querySelector("#orders .badge")?.textContent === `+quote(status))
}

func quote(s string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`) + `"`
}

// ready waits until the button is enabled and has this text.
func (b *tab) ready(words string) {
	b.t.Helper()
	b.await(
		"the button "+words,
		`document.getElementById("buy").getAttribute("aria-disabled") === "false" && document.getElementById("buy").textContent === `+quote(
			words,
		),
	)
}

func (b *tab) press(id string) { b.t.Helper(); b.do(chromedp.Click("#"+id, chromedp.ByID)) }

// reload loads the page again. It is repeated if the page navigates at this moment, which aborts it.
func (b *tab) reload() {
	b.t.Helper()
	testenv.Eventually(b.t, slowTimeout, "the page is loaded again", func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, slowTimeout)
		defer cancel()
		err := chromedp.Run(ctx, chromedp.Reload())
		if err != nil && !strings.Contains(err.Error(), "Not attached to an active page") {
			b.t.Fatalf("browser: %v\n%s", err, b.seen())
		}
		return err == nil
	})
}

func (b *tab) fill(id, words string) {
	b.t.Helper()
	b.do(chromedp.SendKeys("#"+id, words, chromedp.ByID))
}

// offline cuts the browser's connection, or restores it. The browser applies it some time after the call returns, so
// offline waits until requests fail.
func (b *tab) offline(on bool) {
	b.t.Helper()
	b.do(network.EmulateNetworkConditions(on, 0, -1, -1))
	if !on {
		return
	}
	testenv.Eventually(b.t, slowTimeout, "the browser is offline", func() bool {
		var failed bool
		b.do(chromedp.Evaluate(`fetch("/favicon.ico", {cache: "no-store"}).then(() => false, () => true)`, &failed, awaited))
		return failed
	})
}

// lose drops the answers to purchases: the shop receives the requests, and the page gets no response.
func (b *tab) lose(on bool) {
	b.t.Helper()
	if !on {
		b.do(fetch.Disable())
		return
	}
	chromedp.ListenTarget(b.ctx, func(event any) {
		if e, ok := event.(*fetch.EventRequestPaused); ok {
			go func() { // not in the listener, which would block itself
				_ = chromedp.Run(b.ctx, fetch.FailRequest(e.RequestID, network.ErrorReasonConnectionReset))
			}()
		}
	})
	b.do(
		fetch.Enable().
			WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/orders", RequestStage: fetch.RequestStageResponse}}),
	)
}
