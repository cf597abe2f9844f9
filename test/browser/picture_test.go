package browser

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "directory for the pictures of the pages")

// looks are the variants of each picture.
var looks = []struct {
	name, scheme  string
	width, height int64
}{
	{"light", "light", 1000, 760},
	{"dark", "dark", 1000, 760},
	{"phone-light", "light", 390, 780},
	{"phone-dark", "dark", 390, 780},
}

func (b *tab) look(scheme string, width, height int64) {
	b.t.Helper()
	b.do(
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(width, height),
	)
}

func (b *tab) draw(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) error { return chromedp.CaptureScreenshot(&png).Do(ctx) }))
	png, err := paletted(png)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// The pictures of the documentation, written to the directory of -pictures.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures is not set")
	}
	s := openUp(t)
	s.createSale("shoe", "The shoe that everybody wants", 1000, time.Now().Add(26*time.Hour))
	s.createSale("boot", "The boot, last pairs", 40, time.Now().Add(-time.Minute))
	for _, buyer := range []string{"ann", "bob", "cat", "dan", "eve"} {
		s.buy("boot", buyer)
	}
	for _, l := range looks {
		b := open(t, newPerson(t), s.page("shoe", "you"))
		b.look(l.scheme, l.width, l.height)
		b.await("a countdown", `!document.getElementById("countdown").hidden`)
		b.draw("sale-waiting-" + l.name)
		b = open(t, newPerson(t), s.page("boot", "you-"+l.name))
		b.look(l.scheme, l.width, l.height)
		b.ready("Buy now")
		b.press("buy")
		b.orderIs("confirmed")
		b.draw("sale-bought-" + l.name)
	}
}
