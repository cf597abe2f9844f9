package buyer

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestDescriptionIsRendered(t *testing.T) {
	const source = "# Fit\n\nRuns **small**, see [sizes](https://shop.example/sizes?a=1&b=2).\n\n- red\n- *blue*\n\n1. `EU 42`\n\n鞋"
	html, about, err := renderMarkdown(source)
	const want = `<h2>Fit</h2>
<p>Runs <strong>small</strong>, see <a href="https://shop.example/sizes?a=1&amp;b=2">sizes</a>.</p>
<ul>
<li>red</li>
<li><em>blue</em></li>
</ul>
<ol>
<li><code>EU 42</code></li>
</ol>
<p>鞋</p>
`
	if err != nil || string(html) != want {
		t.Errorf("%v\n%s", err, html)
	}
	if about != "Fit Runs small , see sizes . red blue EU 42 鞋" {
		t.Errorf("the summary is %q", about)
	}
	if _, about, _ := renderMarkdown(strings.Repeat("鞋", 1000)); len([]rune(about)) != maxSummary {
		t.Errorf("the summary of a long text has %d characters", len([]rune(about)))
	}
	if html, _, _ := renderMarkdown("### a\n\n## b\n\n###### c"); html != "<h3>a</h3>\n<h2>b</h2>\n<h6>c</h6>\n" {
		t.Errorf("headings: %s", html)
	}
	const links = "[a](/sizes) [b](#top) [c](?x=a:b) <https://shop.example> [d](MAILTO:a@b.example) <a@b.example> [e](tel:+1)"
	html, _, _ = renderMarkdown(links + " [f](intent:g) <blob:h>")
	for _, want := range []string{"/sizes", "#top", "?x=a:b", "https://shop.example", "MAILTO:a@b.example",
		"mailto:a@b.example", "tel:+1"} {
		if !strings.Contains(string(html), `<a href="`+want+`">`) {
			t.Errorf("no link to %s in %s", want, html)
		}
	}
	if !strings.HasSuffix(string(html), "</a> f blob:h</p>\n") {
		t.Errorf("links that are not allowed: %s", html)
	}
	if html, about, err := renderMarkdown(""); html != "" || about != "" || err != nil {
		t.Errorf("no description is %q, %q, %v", html, about, err)
	}
}

// hostile are descriptions that try to run a script, to load something, or to break out of the description.
var hostile = []string{
	"<script>alert(1)</script>",
	"<img src=x onerror=alert(1)>",
	"a <b onclick=alert(1)>b</b>",
	"</section></main><h1>x</h1>",
	"[x](javascript:alert(1))",
	"[x](JaVaScRiPt:alert(1))",
	"[x](&#x6A;avascript:alert(1))",
	"[x](java\nscript:alert(1))",
	"[x](<javascript:alert(1)>)",
	"<javascript:alert(1)>",
	"[x](vbscript:x)",
	"[x](data:text/html,<script>alert(1)</script>)",
	"[x][y]\n\n[y]: javascript:alert(1)",
	"[x](\x01javascript:alert(1))",
	"[x]( javascript:alert(1))",
	"[x](file:///etc/passwd)",
	"[x](javascript&colon;alert(1))",
	"[x](javascript\\:alert(1))",
	"[x](java&Tab;script:alert(1))",
	"[x](&#1;javascript:alert(1))",
	"[x](data:image/svg+xml;base64,PHN2Zz4=)",
	"[x](feed:javascript:alert(1))",
	"[x](view-source:https://shop.example)",
	"[x](blob:https://shop.example/1)",
	"[x](intent://shop.example#Intent;scheme=https;end)",
	"[*x* [y](intent:a) `z`](blob:b)",
	"<blob:https://shop.example/&amp;\"'>",
	"<ms-msdt:/id>",
	"![x](https://evil.example/p.png)",
	"![a ![b](c) *d*](e)",
	"[![x](https://evil.example/p.png)](https://shop.example)",
	`[x](https://shop.example "\"onmouseover=alert(1)")`,
	"[x](https://shop.example/\"onmouseover=alert(1))",
	"{{.Now}}",
	"```<script>\nx\n```",
	"``` x\" onclick=alert(1)\nx\n```",
	"<!--",
	"<![CDATA[",
	"<?php",
	"<style>*{}</style>",
	"&lt;script&gt;",
	"&#1;&#x8;&#127;&#x85;",
	strings.Repeat("[", 2000),
	strings.Repeat("> ", 2000) + "x",
	strings.Repeat("*a ", 2000),
	strings.Repeat("![", 1000) + strings.Repeat("](x)", 1000),
}

// checkDescription fails unless the HTML has known elements only, without handlers, styles and dangerous URLs.
func checkDescription(t *testing.T, source string) {
	t.Helper()
	html, about, err := renderMarkdown(source)
	if err != nil {
		t.Fatalf("%.60q: %v", source, err)
	}
	if strings.ContainsAny(about, "\n\r") || len([]rune(about)) > maxSummary {
		t.Errorf("%.60q: the summary is %q", source, about)
	}
	elements := []string{
		"p",
		"h2",
		"h3",
		"h4",
		"h5",
		"h6",
		"ul",
		"ol",
		"li",
		"em",
		"strong",
		"code",
		"pre",
		"blockquote",
		"a",
		"br",
		"hr",
		"section",
	}
	d := xml.NewDecoder(strings.NewReader("<section>" + string(html) + "</section>"))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%.60q: %v in\n%.500s", source, err, html)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			if c, ok := token.(xml.Comment); ok && string(c) != " raw HTML omitted " {
				t.Errorf("%.60q: a comment %q", source, c)
			}
			continue
		}
		if !slices.Contains(elements, e.Name.Local) {
			t.Errorf("%.60q: <%s> in\n%.500s", source, e.Name.Local, html)
		}
		for _, a := range e.Attr {
			scheme, _, found := strings.Cut(strings.ToLower(a.Value), ":")
			switch {
			case a.Name.Local == "href" && (!found || strings.ContainsAny(scheme, "/?#") || slices.Contains(schemes, scheme)):
			case a.Name.Local == "title", a.Name.Local == "start", e.Name.Local == "code" && a.Name.Local == "class":
			default:
				t.Errorf("%.60q: <%s %s=%q>", source, e.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
}

func TestHostileDescriptionsAreHarmless(t *testing.T) {
	for _, source := range hostile {
		checkDescription(t, source)
	}
	p := newPages(t, Config{})
	for _, source := range hostile {
		s := shoe
		s.Description = source
		rendered, err := p.Sale(English, s)
		if err != nil || strings.Count(string(rendered.Body), "</main>") != 1 ||
			strings.Count(string(rendered.Body), "<script") != 1 {
			t.Errorf("%.60q: %v\n%s", source, err, rendered.Body)
		}
	}
}

func FuzzDescription(f *testing.F) {
	for _, source := range hostile {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		s := shoe
		s.Description = source
		if s.Details.Validate() == nil {
			checkDescription(t, source)
		}
	})
}
