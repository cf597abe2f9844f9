package api

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admin/livestats"
	"sluice/backend/admin/pages"
	"sluice/backend/admin/session"
	"sluice/test/testenv"
)

// fakeBoard holds the samples that it is given.
type fakeBoard struct {
	mu      sync.Mutex
	samples []livestats.Sample
	more    chan struct{}
}

func newFakeBoard() *fakeBoard {
	return &fakeBoard{more: make(chan struct{}), samples: []livestats.Sample{
		{At: 1000, Counts: map[string]float64{"rule:ip:deny": 3}, Latency: &livestats.Latency{P50: 1, P95: 2, P99: 3}, Queue: &livestats.QueueFigures{Ready: 5}, Books: &livestats.BookFigures{Sales: 1, Log: 7}},
		{At: 2000, Counts: map[string]float64{}},
	}}
}

func (b *fakeBoard) add(s livestats.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, s)
	close(b.more)
	b.more = make(chan struct{})
}

func (b *fakeBoard) Since(at int64) (after []livestats.Sample, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.samples {
		if s.At > at {
			after = append(after, s)
		}
	}
	return after, b.more
}
func (b *fakeBoard) Started() time.Time { return orderID(1).Time() }
func (b *fakeBoard) Sources() []livestats.Source {
	at := orderID(1).Time()
	return []livestats.Source{{Name: livestats.Self, SeenAt: &at, Rules: []livestats.Rule{}}, {Name: "http://10.0.0.9/metrics", Edge: true, Error: "no route", Rules: []livestats.Rule{{Name: "ip", Key: "ip", Rate: "20r/s", Burst: "40", Mode: "enforce", OnError: "deny"}}}}
}

func deskPages() *pages.Pages {
	p, err := pages.New()
	if err != nil {
		panic(err)
	}
	return p
}

const form = "Content-Type: application/x-www-form-urlencoded"

// signIn signs in and returns the header that a browser then sends.
func (s *site) signIn(name string) (cookie string) {
	s.t.Helper()
	a := s.ask("POST", "/admin/sign-in", url.Values{"name": {name}, "token": {adminToken}, "to": {"/admin/dead?sale=x"}}.Encode(), form, "Sec-Fetch-Site: same-origin")
	if a.status != 303 || a.header.Get("Location") != "/admin/dead?sale=x" {
		s.t.Fatalf("signing in: %d %v %s", a.status, a.header, a.body)
	}
	set, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		s.t.Fatal(err)
	}
	if !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.Path != "/admin" || set.Secure || set.Domain != "" || strings.Contains(set.Value, adminToken) {
		s.t.Errorf("the cookie is %s", set)
	}
	return "Cookie: " + set.Name + "=" + set.Value
}

func TestSessionDoesWhatTheTokenDoes(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	cookie := s.signIn("Zoë 鞋")
	if got := d.was(); got != "Zoë 鞋 notes desk.sign_in of Zoë 鞋: from 127.0.0.1" {
		t.Errorf("asked %s", got)
	}
	if a := s.ask("GET", "/admin/v1/sales/drop", "", cookie, "Sec-Fetch-Site: same-origin"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	d.was()
	if a := s.ask("POST", "/admin/v1/sales/drop/pause", "", cookie, "Sec-Fetch-Site: same-origin", "Sluice-Desk: 1", "X-Actor: somebody else"); a.status != 200 || d.was() != "Zoë 鞋 pauses drop" {
		t.Errorf("%d %s", a.status, a.body)
	}
	page := s.ask("GET", "/admin/", "", cookie)
	if page.status != 200 || !strings.Contains(page.body, "Zoë 鞋") || page.header.Get("Cache-Control") != "no-store" || !strings.Contains(page.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("the page: %d %v", page.status, page.header)
	}
	a := s.ask("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin")
	if a.status != 303 || !strings.Contains(a.header.Get("Set-Cookie"), "sluice_desk=;") {
		t.Errorf("signing out: %d %v", a.status, a.header)
	}
	if a := s.ask("GET", "/admin/v1/sales/drop", "", cookie, "Sec-Fetch-Site: same-origin"); a.status != 401 {
		t.Errorf("after signing out: %d", a.status)
	}
	if a := s.ask("GET", "/admin/sales/drop", "", cookie); a.status != 303 || a.header.Get("Location") != "/admin/sign-in?to=%2Fadmin%2Fsales%2Fdrop" {
		t.Errorf("after signing out the page is %d %v", a.status, a.header)
	}
}

// Behind a proxy that ends TLS, the session goes over TLS alone.
func TestSessionOverTLSStaysThere(t *testing.T) {
	s := newDeskWorld().serve(t)
	for proto, secure := range map[string]bool{"https": true, "HTTPS": true, "http": false, "": false} {
		a := s.ask("POST", "/admin/sign-in", url.Values{"name": {"ann"}, "token": {adminToken}}.Encode(), form, "Sec-Fetch-Site: same-origin", "X-Forwarded-Proto: "+proto)
		if got := strings.Contains(strings.ToLower(a.header.Get("Set-Cookie")), "; secure"); a.status != 303 || got != secure {
			t.Errorf("%q: %d %s", proto, a.status, a.header.Get("Set-Cookie"))
		}
	}
}

func TestSessionChangesNothingFromElsewhere(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	cookie := s.signIn("ann")
	d.was()
	host := s.addr
	for _, headers := range [][]string{
		nil, {"Sluice-Desk: 1"}, {"Sec-Fetch-Site: same-origin"}, {"Sluice-Desk: 1", "Sec-Fetch-Site: same-site"}, {"Sluice-Desk: 1", "Sec-Fetch-Site: cross-site"}, {"Sluice-Desk: 1", "Sec-Fetch-Site: none"},
		{"Sluice-Desk: 1", "Origin: http://evil.example"}, {"Sluice-Desk: 1", "Origin: null"}, {"Sluice-Desk: 1", "Origin: http://" + host + ".evil.example"}, {"Sluice-Desk: 0", "Origin: http://" + host},
		{"Origin: http://" + host},
	} {
		if a := s.ask("POST", "/admin/v1/sales/drop/pause", "", append(headers, cookie)...); a.status != 403 {
			t.Errorf("%v: %d", headers, a.status)
		}
	}
	for _, site := range []string{"same-site", "cross-site"} {
		for _, path := range []string{"/admin/v1/sales", "/admin/v1/live", "/admin/v1/live/events"} {
			if a := s.ask("GET", path, "", cookie, "Sec-Fetch-Site: "+site); a.status != 403 {
				t.Errorf("%s from %s: %d", path, site, a.status)
			}
		}
		for _, path := range []string{"/admin/sign-in", "/admin/sign-out"} {
			if a := s.ask("POST", path, "name=ann&token="+url.QueryEscape(adminToken), cookie, form, "Sec-Fetch-Site: "+site); a.status != 403 || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s from %s: %d", path, site, a.status)
			}
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the desk was asked: %s", got)
	}
	if a := s.ask("POST", "/admin/v1/sales/drop/pause", "", cookie, "Sluice-Desk: 1", "Origin: http://"+host); a.status != 200 {
		t.Errorf("an old browser at the desk: %d", a.status)
	}
	if a := s.ask("POST", "/admin/v1/sales/drop/pause", "", cookie, "Sluice-Desk: 1", "Sec-Fetch-Site: same-origin", "Authorization: Bearer wrong"); a.status != 401 {
		t.Errorf("a wrong token beside a session: %d", a.status)
	}
}

func TestForgedAndForeignSessionsAreNone(t *testing.T) {
	s := newDeskWorld().serve(t)
	other, _ := session.New("another token", nil, nil).Begin("eve")
	old, _ := session.New(adminToken, nil, func() time.Time { return time.Now().Add(-session.Life - time.Minute) }).Begin("ann")
	same, _ := session.New(adminToken, nil, nil).Begin("ann") // of another backend, or of before a restart
	for _, text := range []string{"", "x", "x.y", other, old, adminToken} {
		if a := s.ask("GET", "/admin/v1/sales", "", "Cookie: sluice_desk="+text, "Sec-Fetch-Site: same-origin"); a.status != 401 {
			t.Errorf("%q: %d", text, a.status)
		}
	}
	if a := s.ask("GET", "/admin/v1/sales", "", "Cookie: sluice_desk="+same, "Sec-Fetch-Site: same-origin"); a.status != 200 {
		t.Errorf("after a restart: %d", a.status)
	}
}

func TestTokenInAnAddressIsRefused(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	for _, path := range []string{"/admin/v1/sales?token=x", "/admin/v1/sales?access_token=" + url.QueryEscape(adminToken), "/admin/v1/sales?q=" + url.QueryEscape(adminToken), "/admin/?Token=x", "/admin/sign-in?" + url.QueryEscape(adminToken), "/admin/v1/live/events?bearer=x"} {
		a := s.operate("GET", path, "")
		wantProblem(t, a, 400, "bad-request")
		if !strings.Contains(a.body, "address") || strings.Contains(a.body, adminToken) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the desk was asked: %s", got)
	}
}

func TestSigningInIsTriedAFewTimesOnly(t *testing.T) {
	d := newDeskWorld()
	now := time.Now()
	cfg := d.config()
	cfg.Now = func() time.Time { return now }
	a, err := NewOperator(cfg)
	s := serve(t, a, err)
	try := func(token, name string) answer {
		return s.ask("POST", "/admin/sign-in", url.Values{"name": {name}, "token": {token}}.Encode(), form, "Sec-Fetch-Site: same-origin")
	}
	for i := range 5 {
		if a := try("wrong", "ann"); a.status != 401 || !strings.Contains(a.body, "not the operator&#39;s token") {
			t.Fatalf("try %d: %d %s", i, a.status, a.body)
		}
	}
	for _, token := range []string{"wrong", adminToken} { // the right one too, or it could be found by trying
		if a := try(token, "ann"); a.status != 429 || a.header.Get("Retry-After") != "12" || a.header.Get("Set-Cookie") != "" {
			t.Errorf("one more: %d %v", a.status, a.header)
		}
	}
	if a := s.operate("GET", "/admin/v1/sales", ""); a.status != 200 {
		t.Errorf("commands are kept out: %d", a.status)
	}
	now = now.Add(12 * time.Second)
	if a := try(adminToken, "  "); a.status != 400 {
		t.Errorf("without a name: %d", a.status)
	}
	for range 20 {
		if a := try(adminToken, "ann"); a.status != 303 {
			t.Fatalf("the right token: %d", a.status)
		}
	}
}

// Who has to try again types the token again, and nothing else. What nobody may read is never in a page.
func TestSigningInAgainKeepsTheName(t *testing.T) {
	a, err := NewOperator(newDeskWorld().config())
	s := serve(t, a, err)
	for _, c := range []struct {
		token, name, want string
		status            int
	}{
		{"wrong", ` Zoë "the <b>` + " ", `value="Zoë &#34;the &lt;b&gt;"`, 401},
		{adminToken, strings.Repeat("é", 40), `value="` + strings.Repeat("é", 40) + `"`, 400},
		{"ann", adminToken, `name="name" value=""`, 401}, // each in the other's field
		{"wrong", "", `name="name" value=""`, 401},
		{"wrong", "ann", `value="ann"`, 401},
		{"wrong", "ann", `value="ann"`, 401},
		{"wrong", "ann", `value="ann"`, 401},
		{"wrong", "ben", `value="ben"`, 429},
	} {
		got := s.ask("POST", "/admin/sign-in", url.Values{"name": {c.name}, "token": {c.token}}.Encode(), form, "Sec-Fetch-Site: same-origin")
		if got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%q with the token %q: %d, want %d and %s in\n%s", c.name, c.token, got.status, c.status, c.want, got.body)
		}
		if strings.Contains(got.body, adminToken) || strings.Contains(got.body, `"`+c.token+`"`) {
			t.Errorf("the page holds the token that was typed:\n%s", got.body)
		}
	}
}

func TestSigningInLeadsToTheDeskOnly(t *testing.T) {
	for to, want := range map[string]string{
		"/admin/sales/x?y=1": "/admin/sales/x?y=1", "": "/admin/", "https://evil.example/admin/": "/admin/", "//evil.example/admin/": "/admin/", `/\evil.example`: "/admin/", `/admin/\..\..`: "/admin/",
		"/admin/../metrics": "/admin/", "/admin/%2e%2e/metrics": "/admin/", "javascript:alert(1)": "/admin/", "/metrics": "/admin/", "/admin/sign-out": "/admin/", "\x00": "/admin/", "/admin/x\r\nSet-Cookie: a=b": "/admin/",
	} {
		if got := localPage(to); got != want {
			t.Errorf("%q leads to %q", to, got)
		}
	}
}

func TestLiveFiguresAreToldAndAsked(t *testing.T) {
	d := newDeskWorld()
	cfg := d.config()
	b := newFakeBoard()
	cfg.Board = b
	a, err := NewOperator(cfg)
	s := serve(t, a, err)
	if a := s.operate("GET", "/admin/v1/live?since=1000", ""); a.status != 200 || strings.Count(a.body, `"at":`) != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.operate("GET", "/admin/v1/live?since=x", ""); a.status != 400 {
		t.Errorf("%d", a.status)
	}
	if a := s.operate("GET", "/admin/v1/live", ""); !strings.Contains(a.body, `"rule:ip:deny":3`) {
		t.Errorf("%s", a.body)
	}
	next, _ := s.watch("/admin/v1/live/events?since=1000", "Authorization: Bearer "+adminToken)
	if e := next(); !strings.Contains(e, `"at":2000`) || strings.Contains(e, `"at":1000`) {
		t.Errorf("first %s", e)
	}
	b.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if e := next(); !strings.Contains(e, `"at":3000`) || strings.Contains(e, `"at":2000`) {
		t.Errorf("then %s", e)
	}
}

// watch opens the stream of the desk; next returns the data of its next event, or "end".
func (s *site) watch(path string, headers ...string) (next func() string, hangUp func()) {
	s.t.Helper()
	req, err := http.NewRequest("GET", "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := openAPI(s.t).Valid(openAPI(s.t).Document().At("components", "schemas", "Live"), []byte(data)); err != nil {
					s.t.Errorf("%s: %v", data, err)
				}
				return data
			}
		}
		return "end"
	}, func() { _ = resp.Body.Close() }
}

func TestDesksAreBounded(t *testing.T) {
	d := newDeskWorld()
	cfg := d.config()
	b := newFakeBoard()
	cfg.Board = b
	a, err := NewOperator(cfg)
	s := serve(t, a, err)
	var hangUps []func()
	for range maxWatchers {
		next, hangUp := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
		next()
		hangUps = append(hangUps, hangUp)
	}
	if a := s.operate("GET", "/admin/v1/live/events", ""); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d", a.status)
	}
	for _, hangUp := range hangUps {
		hangUp()
	}
	at := int64(10_000)
	testenv.Eventually(t, 20*time.Second, "room again", func() bool { // a client that is gone is found out by a write
		at++
		b.add(livestats.Sample{At: at, Counts: map[string]float64{}})
		return s.operate("HEAD", "/admin/v1/live/events", "").status == 200
	})
	next, _ := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
	next()
}

func TestDeskStreamEndsWithItsSession(t *testing.T) {
	d := newDeskWorld()
	cfg := d.config()
	b := newFakeBoard()
	cfg.Board = b
	a, err := NewOperator(cfg)
	s := serve(t, a, err)
	cookie := s.signIn("ann")
	next, _ := s.watch("/admin/v1/live/events", cookie, "Sec-Fetch-Site: same-origin")
	next()
	if a := s.ask("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin"); a.status != 303 {
		t.Fatal(a.status)
	}
	b.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if got := next(); got != "end" {
		t.Errorf("after signing out: %s", got)
	}
}

// endedBook is what backends tell each other of sessions that were ended.
type endedBook struct {
	mu  sync.Mutex
	all map[string]time.Duration
}

func (b *endedBook) End(_ context.Context, id string, life time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[id] = life
	return nil
}

func (b *endedBook) Ended(_ context.Context, id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, over := b.all[id]
	return over, nil
}

// A copy of the cookie is worth nothing at any backend once its owner has signed out at one, and a page that is open there is told no more.
func TestSigningOutIsSigningOutEverywhere(t *testing.T) {
	book := &endedBook{all: map[string]time.Duration{}}
	open := func() (*site, *fakeBoard) {
		cfg := newDeskWorld().config()
		b := newFakeBoard()
		cfg.Board, cfg.Ended = b, book
		a, err := NewOperator(cfg)
		return serve(t, a, err), b
	}
	here, _ := open()
	there, figures := open()
	cookie := here.signIn("ann")
	next, _ := there.watch("/admin/v1/live/events", cookie, "Sec-Fetch-Site: same-origin")
	next()
	if a := here.ask("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin"); a.status != 303 {
		t.Fatal(a.status)
	}
	figures.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if got := next(); got != "end" {
		t.Errorf("the other backend still tells: %s", got)
	}
	if a := there.ask("GET", "/admin/v1/sales", "", cookie, "Sec-Fetch-Site: same-origin"); a.status != 401 {
		t.Errorf("the other backend answers %d", a.status)
	}
	if a := there.ask("GET", "/admin/", "", cookie, "Sec-Fetch-Site: same-origin"); a.status != 303 || !strings.Contains(a.header.Get("Location"), "sign-in") {
		t.Errorf("the other backend shows %d", a.status)
	}
	for _, life := range book.all {
		if life <= session.Life-time.Minute || life > session.Life {
			t.Errorf("remembered for %s", life)
		}
	}
}
