package browser

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"sluice/test/testenv"
)

// Pictures of the report of `sluice rehearse` against `sluice up`: the whole page, in both themes and at a phone's
// width. The browser loads it without any other resource.
func TestPicturesOfRehearsal(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures is not set")
	}
	data, out := t.TempDir(), t.TempDir()
	s, env := newShop(t)
	s.edge = testenv.Launch(t, binary, env, "up", "--data", data)
	testenv.AwaitOK(s.t, s.base+"/readyz")
	cmd := exec.CommandContext(t.Context(), binary, "rehearse", "--data", data, "--out", out, "--seed", "1", "--buyers",
		"800", "--stock", "200")
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Logf("%v: %s", err, said.String()) // on a slow machine the result may be no-go; its picture is written as well
	}
	pages, err := filepath.Glob(filepath.Join(out, "rehearsal-*.html"))
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d reports, %v: %s", len(pages), err, said.String())
	}
	for _, l := range looks {
		if l.width < 500 {
			l.height = 1400
		}
		b := open(t, newPerson(t), "file://"+pages[0])
		b.look(l.scheme, l.width, l.height)
		b.await("the plots", `document.querySelectorAll("svg").length === 3`)
		var png []byte
		b.do(chromedp.ActionFunc(func(ctx context.Context) error { return chromedp.FullScreenshot(&png, 100).Do(ctx) }))
		png, err := paletted(png)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*pictures, "rehearsal-"+l.name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
		b.clean()
	}
}
