package buyer

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/sale"
)

func newPages(t testing.TB, cfg Config) *Pages {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var shoe = Sale{
	Sale: sale.Sale{
		ID: "shoe", Title: "The shoe", Price: sale.Price{Amount: 9990, Currency: "EUR"}, Stock: 10, PerBuyer: 1,
		OpensAt: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
	},
	Left: 7, State: sale.StateOpen,
}

// Chinese text has the punctuation marks of its script, which are as wide as its characters.
func TestChinesePunctuation(t *testing.T) {
	narrow := regexp.MustCompile(`\p{Han}[,:;!?.()]|[,:;!?()]\p{Han}|\}[,:;!?]`)
	for key, text := range newPages(t, Config{}).texts[Chinese] {
		if found := narrow.FindString(text); found != "" {
			t.Errorf("%s: %q in %q", key, found, text)
		}
	}
}

// All languages have the same keys and placeholders, and the scripts use existing keys.
func TestLanguagesHaveTheSameTexts(t *testing.T) {
	p := newPages(t, Config{})
	en, zh := p.texts[English], p.texts[Chinese]
	if a, b := slices.Sorted(maps.Keys(en)), slices.Sorted(maps.Keys(zh)); !slices.Equal(a, b) {
		t.Fatalf("English has %v\nChinese has %v", a, b)
	}
	place := regexp.MustCompile(`\{\w+\}`)
	for key := range en {
		a, b := place.FindAllString(en[key], -1), place.FindAllString(zh[key], -1)
		slices.Sort(a)
		slices.Sort(b)
		if strings.TrimSpace(en[key]) == "" || strings.TrimSpace(zh[key]) == "" {
			t.Errorf("%s is empty", key)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s: %q has %v, %q has %v", key, en[key], a, zh[key], b)
		}
	}
	used := usedTexts(t)
	if len(used) < 20 {
		t.Errorf("the scripts use the keys %q, want at least 20", used)
	}
	for _, key := range used {
		if _, ok := en[key]; !ok && !strings.HasSuffix(key, ".") { // a prefix
			t.Errorf("the scripts use the missing key %q", key)
		}
	}
	for _, prefix := range []string{"state.", "buy.", "message."} {
		for _, s := range []sale.State{sale.StateScheduled, sale.StatePaused, sale.StateSoldOut, sale.StateClosed} {
			if en[prefix+string(s)] == "" {
				t.Errorf("no text for %s%s", prefix, s)
			}
		}
	}
	for _, s := range []sale.Status{
		sale.StatusQueued, sale.StatusCreated, sale.StatusPaid, sale.StatusCancelled, sale.StatusDead,
	} {
		if en["status."+string(s)] == "" || en["message."+string(s)] == "" {
			t.Errorf("no text for an order that is %s", s)
		}
	}
}

// usedTexts returns the keys in the calls tr('key') and tr(condition ? 'key' : 'other') of the scripts. A key that a
// script completes ends with ".".
func usedTexts(t *testing.T) (keys []string) {
	t.Helper()
	call := regexp.MustCompile(`\btr\([^',{]*'([a-z._]+)'(?: : '([a-z._]+)')?`)
	names, err := fs.Glob(files, "page/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		script, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(script), -1) {
			keys = append(keys, m[1])
			if m[2] != "" {
				keys = append(keys, m[2])
			}
		}
	}
	return keys
}

func TestTitlesAreEscaped(t *testing.T) {
	p := newPages(t, Config{})
	for _, title := range []string{
		`</title><script>x</script>`, `"><img src=x onerror=x>`, `' onclick='x`, "{{.Now}}", "\u202Eevil", `</style>`,
	} {
		s := shoe
		s.Title = title
		one, err := p.Sale(English, s)
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.Sales(English, []Sale{s})
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{string(one.Body), string(all.Body)} {
			if strings.Count(body, "<script") > 1 || strings.Contains(body, "<img") || strings.Contains(body, "' onclick='") ||
				strings.Count(body, "</style>") != 1 {
				t.Errorf("the title %q is not escaped:\n%s", title, body)
			}
		}
		if head, _, _ := strings.Cut(string(one.Body), "</head>"); strings.ContainsRune(head, 0x202E) {
			t.Errorf("the window's title changes its direction: %q", title)
		}
	}
}

func TestPlaceholdersInATitleStay(t *testing.T) {
	set := shoe
	set.Title = "A set of {price}"
	rendered, err := newPages(t, Config{}).Sale(English, set)
	if want := `content="A set of {price} for 99.90 EUR, `; err != nil || !strings.Contains(string(rendered.Body), want) {
		t.Errorf("%v, the page lacks %s", err, want)
	}
}

// Without JavaScript there is no countdown: the page of a scheduled sale has its opening time.
func TestOpeningTimeWithoutJavaScript(t *testing.T) {
	p := newPages(t, Config{})
	for _, c := range []struct {
		lang  Lang
		state sale.State
		want  string
	}{
		{English, sale.StateScheduled, "Opens: 2026-12-01 10:00 UTC"},
		{Chinese, sale.StateScheduled, "开始时间：2026-12-01 10:00 UTC"},
		{English, sale.StateOpen, ""},
	} {
		s := shoe
		s.State = c.state
		page, err := p.Sale(c.lang, s)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if m := regexp.MustCompile(`<noscript><p class="at">([^<]*)</p></noscript>`).FindSubmatch(page.Body); m != nil {
			got = string(m[1])
		}
		if got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.lang, c.state, got, c.want)
		}
	}
}

// The page fits into the first round trip, for a fast first paint.
func TestPageSize(t *testing.T) {
	p := newPages(t, Config{})
	page, err := p.Sale(Chinese, shoe)
	if err != nil {
		t.Fatal(err)
	}
	const firstWindow = 10 * 1460 // the initial congestion window (RFC 6928)
	if len(page.Gzip) > firstWindow {
		t.Errorf("the page has %d bytes, more than the %d of the first round trip", len(page.Gzip), firstWindow)
	}
	t.Logf("%d bytes, %d compressed", len(page.Body), len(page.Gzip))
	sum := len(page.Gzip)
	for _, url := range []string{p.script, p.reload, p.icon} {
		a, _ := p.Asset(path.Base(url))
		sum += len(a.Gzip)
	}
	if sum > 50_000 {
		t.Errorf("page and assets have %d bytes, want 50,000 at most", sum)
	}
}

func TestSalesAreOrderedAndBounded(t *testing.T) {
	p := newPages(t, Config{})
	var list []Sale
	for range 500 {
		s := shoe
		s.ID, s.State = "closed", sale.StateClosed
		list = append(list, s)
	}
	later, sooner, open := shoe, shoe, shoe
	later.ID, later.State, later.OpensAt = "later", sale.StateScheduled, shoe.OpensAt.Add(time.Hour)
	sooner.ID, sooner.State = "sooner", sale.StateScheduled
	open.ID = "open"
	page, err := p.Sales(English, append(list, later, sooner, open))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range regexp.MustCompile(`href="/s/(\w+)\?`).FindAllStringSubmatch(string(page.Body), -1) {
		ids = append(ids, m[1])
	}
	if len(ids) != maxListed || !slices.Equal(ids[:3], []string{"open", "sooner", "later"}) {
		t.Errorf("%d sales, the first are %v", len(ids), ids[:min(3, len(ids))])
	}
	if !strings.Contains(string(page.Body), "And 303 more.") {
		t.Error("the page does not mention the other sales")
	}
}

func TestLanguage(t *testing.T) {
	for _, c := range []struct {
		requested, accept string
		want              Lang
	}{
		{"", "", English}, {"", "zh", Chinese}, {"", "zh-Hant-TW,en;q=0.1", Chinese}, {"", "de, zh;q=0.5", Chinese},
		{"", "de", English}, {"en", "zh", English},
		{"zh", "en", Chinese}, {"fr", "zh", Chinese}, {"", "\x00;;;q=", English}, {"", strings.Repeat("zh,", 100), English},
	} {
		if got := Language(c.requested, c.accept); got != c.want {
			t.Errorf("Language(%q, %.20q) = %s, want %s", c.requested, c.accept, got, c.want)
		}
	}
}

// A page that a link of another page opens has the language of that page, also if it was chosen by ?lang=.
func TestLinksKeepTheLanguage(t *testing.T) {
	p := newPages(t, Config{})
	for _, lang := range langs {
		one, err := p.Sale(lang, shoe)
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.Sales(lang, []Sale{shoe})
		if err != nil {
			t.Fatal(err)
		}
		missing, err := p.Missing(lang)
		if err != nil {
			t.Fatal(err)
		}
		notReady, err := p.NotReady(lang)
		if err != nil {
			t.Fatal(err)
		}
		back, other := "/?lang="+string(lang), "?lang="+string(lang.other())
		for name, c := range map[string]struct {
			body  []byte
			links []string
		}{
			"a sale":    {one.Body, []string{back, other}},
			"all sales": {all.Body, []string{"/s/shoe?lang=" + string(lang), other}},
			"missing":   {missing.Body, []string{back, other}},
			"not ready": {notReady.Body, []string{back, other}},
		} {
			var links []string
			for _, m := range regexp.MustCompile(`<a href="([^"]*)"`).FindAllSubmatch(c.body, -1) {
				links = append(links, string(m[1]))
			}
			if !slices.Equal(links, c.links) {
				t.Errorf("%s in %s links to %q, want %q", name, lang, links, c.links)
			}
		}
	}
}

func TestPrices(t *testing.T) {
	for _, c := range []struct {
		price sale.Price
		lang  Lang
		want  string
	}{
		{
			sale.Price{Amount: 9990, Currency: "EUR"}, English, "99.90 EUR",
		}, {sale.Price{Amount: 5, Currency: "USD"}, English, "0.05 USD"},
		{
			sale.Price{Amount: 123456789, Currency: "CNY"}, Chinese, "CNY 1,234,567.89",
		}, {sale.Price{Amount: 1500, Currency: "JPY"}, English, "1,500 JPY"},
		{
			sale.Price{Amount: 1500, Currency: "BHD"}, English, "1.500 BHD",
		}, {sale.Price{Amount: 100, Currency: "QQQ"}, English, "1.00 QQQ"}, {sale.Price{Currency: "EUR"}, Chinese, "免费"},
	} {
		if got := formatPrice(c.lang, c.price); got != c.want {
			t.Errorf("%v: %q, want %q", c.price, got, c.want)
		}
	}
}

func TestSignInURLIsValidated(t *testing.T) {
	for _, bad := range []string{
		"javascript:alert(1)", "//shop.example", "shop", "https://", "https://a:b@shop.example/", "data:text/html,x",
		"https://shop.example/\x00", "https://shop.example/login", "https://shop.example/login?back=%s",
	} {
		if _, err := New(Config{SignIn: bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	p := newPages(t, Config{SignIn: "https://shop.example/login?back={url}"})
	page, err := p.Sale(English, shoe)
	if err != nil || !strings.Contains(string(page.Body), `data-sign-in="https://shop.example/login?back={url}"`) {
		t.Errorf("the page lacks the sign-in URL (%v)", err)
	}
}

func TestFrameAncestorsAreValidated(t *testing.T) {
	for _, bad := range []string{
		"*", "shop.example", "https://shop.example/", "https://shop.example; script-src *", "https://a b", "javascript:x",
		"https://", "https://*", "https://shop.example:port", "'self'", "https://x\r\nX: y",
	} {
		if _, err := New(Config{FrameAncestors: []string{"https://shop.example", bad}}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for _, c := range []struct {
		ancestors []string
		want      string
		options   bool
	}{
		{nil, "frame-ancestors 'none'", true},
		{[]string{"https://*.shop.example", "http://127.0.0.1:8000"}, "frame-ancestors https://*.shop.example http://127.0.0.1:8000", false},
	} {
		rendered, err := newPages(t, Config{FrameAncestors: c.ancestors}).Sale(English, shoe)
		if err != nil {
			t.Fatal(err)
		}
		policy, options := "", false
		for _, h := range rendered.Headers {
			switch h.Name {
			case "Content-Security-Policy":
				policy = h.Value
			case "X-Frame-Options":
				options = true
			}
		}
		if !strings.Contains(policy, "; "+c.want+"; img-src 'self'") || options != c.options {
			t.Errorf("%v: %s, X-Frame-Options %v", c.ancestors, policy, options)
		}
	}
}

// A page is rendered once a second while nothing on it changes, and immediately when something does.
func TestPageOfASaleIsRenderedOncePerSecond(t *testing.T) {
	now := shoe.OpensAt
	p := newPages(t, Config{Now: func() time.Time { return now }})
	body := func(lang Lang, s Sale) string {
		t.Helper()
		rendered, err := p.Sale(lang, s)
		if err != nil {
			t.Fatal(err)
		}
		return string(rendered.Body)
	}
	first := body(English, shoe)
	now = now.Add(pageAge - 1)
	if body(English, shoe) != first {
		t.Error("the page was rendered twice within a second")
	}
	sold := shoe
	sold.Left--
	if !strings.Contains(body(English, sold), "6 of 10 left") || !strings.Contains(body(Chinese, shoe), "剩余 7") {
		t.Error("a page is shown for another state or language")
	}
	now = now.Add(1)
	if body(English, shoe) == first {
		t.Error("the page is older than a second")
	}
	for left := range int64(3 * maxRecent) {
		sold.Left = left
		body(English, sold)
	}
	if n := len(p.recent.pages); n > maxRecent {
		t.Errorf("%d pages are kept", n)
	}
}

// A sale's picture is the only one that the page's policy allows.
func TestPictureIsAllowedByThePolicy(t *testing.T) {
	p := newPages(t, Config{})
	for picture, sources := range map[string]string{"": "img-src 'self'", "https://cdn.shop.example:444/a.jpg?b&c": "img-src 'self' https://cdn.shop.example:444"} {
		s := shoe
		s.Picture = picture
		rendered, err := p.Sale(English, s)
		if err != nil {
			t.Fatal(err)
		}
		if rendered.Headers[0].Name != "Content-Security-Policy" ||
			!strings.HasSuffix(rendered.Headers[0].Value, "; "+sources) {
			t.Errorf("%q: %v", picture, rendered.Headers[0])
		}
		want := `<img class="picture" src="https://cdn.shop.example:444/a.jpg?b&amp;c" alt="The shoe"`
		if strings.Contains(string(rendered.Body), want) != (picture != "") {
			t.Errorf("%q: the page\n%s", picture, rendered.Body)
		}
	}
}

func TestCheckoutURLIsValidated(t *testing.T) {
	for _, bad := range []string{
		"javascript:alert({order})", "https://shop.example/pay", "https://shop.example/pay?order={id}", "/pay?order={order}",
		"https://shop.example/pay?order={order}&sale={shop}", "https://a:b@shop.example/{order}", "https://?{order}",
	} {
		if _, err := New(Config{Checkout: bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	p := newPages(t, Config{Checkout: "https://shop.example/pay?order={order}&sale={sale}"})
	page, err := p.Sale(English, shoe)
	want := `data-checkout="https://shop.example/pay?order={order}&amp;sale={sale}"`
	if err != nil || !strings.Contains(string(page.Body), want) {
		t.Errorf("the page lacks the checkout (%v)", err)
	}
}

func TestAssets(t *testing.T) {
	p := newPages(t, Config{})
	urls := []string{p.script, p.reload, p.icon}
	for _, url := range urls {
		name := path.Base(url)
		want, ok := p.Asset(name)
		if !ok || !want.Exact || len(want.Body) == 0 {
			t.Errorf("%s: %v, %v", name, want, ok)
		}
		other := regexp.MustCompile(`\.[0-9a-f]{12}\.`).ReplaceAllString(name, ".0123456789ab.")
		if a, ok := p.Asset(other); !ok || a.Exact || string(a.Body) != string(want.Body) {
			t.Errorf("%s, of another version: %v", other, ok)
		}
	}
	for _, name := range []string{
		"", "sale.js", "sale..js", "../pages.go", "sale.0123456789ab.css", "sale.0123456789abc.js",
	} {
		if _, ok := p.Asset(name); ok {
			t.Errorf("asset %q exists", name)
		}
	}
	page, err := p.Sale(English, shoe)
	if err != nil {
		t.Fatal(err)
	}
	notReady, err := p.NotReady(English)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range urls {
		if !strings.Contains(string(page.Body)+string(notReady.Body), url) {
			t.Errorf("no page loads %s", url)
		}
	}
}

func TestTextsAreJSON(t *testing.T) {
	p := newPages(t, Config{})
	v := p.view(English)
	var w map[string]string
	if err := json.Unmarshal([]byte(v.TextJSON), &w); err != nil || w["buy"] != "Buy now" {
		t.Errorf("%v: %v", w, err)
	}
}
