package pages

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestPagesLoadTheirFilesAndHaveNoInlineScript(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	view, err := p.View(`<b>"Zoë"</b>`, time.Now(), true)
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.SignIn("wrong", `"><script>`, `/admin/dead?x="><script>`)
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string][]byte{"view": view.Body, "sign-in": in.Body} {
		text := string(page)
		if strings.Contains(text, "<b>") || strings.Contains(text, `"><script>`) ||
			regexp.MustCompile(`<script(>| [^>]*>)[^<]`).MatchString(text) ||
			regexp.MustCompile(`\son[a-z]+=|\sstyle=|<style`).MatchString(text) {
			t.Errorf("%s has inline script or style, or unescaped text:\n%s", name, text)
		}
		files := regexp.MustCompile(`/admin/assets/([^"]+)"`).FindAllStringSubmatch(text, -1)
		if len(files) < 2 {
			t.Errorf("%s loads %d files", name, len(files))
		}
		for _, f := range files {
			if a, ok := p.Asset(f[1]); !ok || !a.Exact || len(a.Body) == 0 {
				t.Errorf("%s loads %s, which does not exist", name, f[1])
			}
		}
	}
	if strings.Contains(string(in.Body), "<script") {
		t.Error("the sign-in page has a script")
	}
}

// The scripts never parse text as markup or code.
func TestScriptsCreateNoMarkup(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	a, _ := p.Asset(p.script)
	for _, way := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc", "javascript:",
	} {
		if strings.Contains(string(a.Body), way) {
			t.Errorf("the script uses %s", way)
		}
	}
	names, err := fs.Glob(files, "page/*.js")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(a.Body), string(text)) {
			t.Errorf("%s is not in the script", name)
		}
	}
	if n := len(a.Gzip); n > 30<<10 {
		t.Errorf("the compressed script has %d bytes", n)
	}
}
