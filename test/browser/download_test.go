package browser

import (
	"os"
	"path/filepath"
	"time"

	protocol "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// download clicks a link that saves a file, and returns the file's suggested name and its text. The profile is that of
// b.
func (b *tab) download(profile person, selector string) (name, text string) {
	b.t.Helper()
	dir := b.t.TempDir()
	begun := make(chan *protocol.EventDownloadWillBegin, 1)
	ended := make(chan protocol.DownloadProgressState, 1)
	chromedp.ListenBrowser(b.ctx, func(event any) {
		switch e := event.(type) {
		case *protocol.EventDownloadWillBegin:
			begun <- e
		case *protocol.EventDownloadProgress:
			if e.State != protocol.DownloadProgressStateInProgress {
				ended <- e.State
			}
		}
	})
	all := cdp.WithExecutor(browser.ctx, chromedp.FromContext(browser.ctx).Browser)
	if err := protocol.SetDownloadBehavior(protocol.SetDownloadBehaviorBehaviorAllowAndName).
		WithBrowserContextID(cdp.BrowserContextID(profile)).
		WithDownloadPath(dir).WithEventsEnabled(true).Do(all); err != nil {
		b.t.Fatal(err)
	}
	b.click(`document.querySelector(` + quote(selector) + `)`)
	late := time.After(slowTimeout)
	select {
	case state := <-ended:
		if state != protocol.DownloadProgressStateCompleted {
			b.t.Fatalf("the download of %s: %s", selector, state)
		}
	case <-late:
		b.t.Fatalf("the download of %s did not end", selector)
	}
	e := <-begun
	file, err := os.ReadFile(filepath.Join(dir, e.GUID))
	if err != nil {
		b.t.Fatal(err)
	}
	return e.SuggestedFilename, string(file)
}
