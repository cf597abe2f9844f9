package adminhttp

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
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

// fakeLiveStats holds the samples that it is given.
type fakeLiveStats struct {
	mu      sync.Mutex
	samples []livestats.Sample
	more    chan struct{}
}

func newFakeLiveStats() *fakeLiveStats {
	return &fakeLiveStats{more: make(chan struct{}), samples: []livestats.Sample{
		{
			At:      1000,
			Counts:  map[string]float64{"rule:ip:deny": 3},
			Latency: &livestats.Latency{P50: 1, P95: 2, P99: 3},
			Queue:   &livestats.QueueCounts{Ready: 5},
			Totals:  &livestats.Totals{Sales: 1, Log: 7},
		},
		{At: 2000, Counts: map[string]float64{}},
	}}
}

func (b *fakeLiveStats) add(s livestats.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, s)
	close(b.more)
	b.more = make(chan struct{})
}

func (b *fakeLiveStats) Since(at int64) (after []livestats.Sample, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.samples {
		if s.At > at {
			after = append(after, s)
		}
	}
	return after, b.more
}
func (b *fakeLiveStats) Started() time.Time { return servertest.OrderID(1).Time() }
func (b *fakeLiveStats) Sources() []livestats.Source {
	at := servertest.OrderID(1).Time()
	return []livestats.Source{
		{Name: livestats.Self, SeenAt: &at, Rules: []livestats.Rule{}},
		{
			Name:  "http://10.0.0.9/metrics",
			Edge:  true,
			Error: "no route",
			Rules: []livestats.Rule{{Name: "ip", Key: "ip", Rate: "20r/s", Burst: "40", Mode: "enforce", OnError: "deny"}},
		},
	}
}

func consolePages() *pages.Pages {
	p, err := pages.New()
	if err != nil {
		panic(err)
	}
	return p
}

const form = "Content-Type: application/x-www-form-urlencoded"

// signIn signs in and returns the header that a browser then sends.
func (s *site) signIn(name string) (cookie string) {
	s.T.Helper()
	a := s.Do(
		"POST",
		"/admin/sign-in",
		url.Values{"name": {name}, "token": {adminToken}, "to": {"/admin/dead?sale=x"}}.Encode(),
		form,
		"Sec-Fetch-Site: same-origin",
	)
	if a.Status != 303 || a.Header.Get("Location") != "/admin/dead?sale=x" {
		s.T.Fatalf("signing in: %d %v %s", a.Status, a.Header, a.Body)
	}
	set, err := http.ParseSetCookie(a.Header.Get("Set-Cookie"))
	if err != nil {
		s.T.Fatal(err)
	}
	if !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.Path != "/admin" || set.Secure ||
		set.Domain != "" ||
		strings.Contains(set.Value, adminToken) {
		s.T.Errorf("the cookie is %s", set)
	}
	return "Cookie: " + set.Name + "=" + set.Value
}

func TestSessionDoesWhatTheTokenDoes(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	cookie := s.signIn("Zoë 鞋")
	if got := d.was(); got != "Zoë 鞋 notes admin.sign_in of Zoë 鞋: from 127.0.0.1" {
		t.Errorf("asked %s", got)
	}
	if a := s.Do("GET", "/admin/v1/sales/drop", "", cookie, "Sec-Fetch-Site: same-origin"); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.was()
	if a := s.Do(
		"POST",
		"/admin/v1/sales/drop/pause",
		"",
		cookie,
		"Sec-Fetch-Site: same-origin",
		"Sluice-Admin: 1",
		"X-Actor: somebody else",
	); a.Status != 200 ||
		d.was() != "Zoë 鞋 pauses drop" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	page := s.Do("GET", "/admin/", "", cookie)
	if page.Status != 200 || !strings.Contains(page.Body, "Zoë 鞋") || page.Header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("the page: %d %v", page.Status, page.Header)
	}
	a := s.Do("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin")
	if a.Status != 303 || !strings.Contains(a.Header.Get("Set-Cookie"), "sluice_admin=;") {
		t.Errorf("signing out: %d %v", a.Status, a.Header)
	}
	if a := s.Do("GET", "/admin/v1/sales/drop", "", cookie, "Sec-Fetch-Site: same-origin"); a.Status != 401 {
		t.Errorf("after signing out: %d", a.Status)
	}
	if a := s.Do(
		"GET",
		"/admin/sales/drop",
		"",
		cookie,
	); a.Status != 303 ||
		a.Header.Get("Location") != "/admin/sign-in?to=%2Fadmin%2Fsales%2Fdrop" {
		t.Errorf("after signing out the page is %d %v", a.Status, a.Header)
	}
}

// Behind a proxy that ends TLS, the session goes over TLS alone.
func TestSessionOverTLSStaysThere(t *testing.T) {
	s := newFakeService().serve(t)
	for proto, secure := range map[string]bool{"https": true, "HTTPS": true, "http": false, "": false} {
		a := s.Do(
			"POST",
			"/admin/sign-in",
			url.Values{"name": {"ann"}, "token": {adminToken}}.Encode(),
			form,
			"Sec-Fetch-Site: same-origin",
			"X-Forwarded-Proto: "+proto,
		)
		if got := strings.Contains(
			strings.ToLower(a.Header.Get("Set-Cookie")),
			"; secure",
		); a.Status != 303 ||
			got != secure {
			t.Errorf("%q: %d %s", proto, a.Status, a.Header.Get("Set-Cookie"))
		}
	}
}

func TestSessionChangesNothingFromElsewhere(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	cookie := s.signIn("ann")
	d.was()
	host := s.Addr
	for _, headers := range [][]string{
		nil, {"Sluice-Admin: 1"}, {"Sec-Fetch-Site: same-origin"}, {"Sluice-Admin: 1", "Sec-Fetch-Site: same-site"}, {
			"Sluice-Admin: 1", "Sec-Fetch-Site: cross-site",
		}, {"Sluice-Admin: 1", "Sec-Fetch-Site: none"},
		{"Sluice-Admin: 1", "Origin: http://evil.example"}, {"Sluice-Admin: 1", "Origin: null"}, {
			"Sluice-Admin: 1", "Origin: http://" + host + ".evil.example",
		}, {"Sluice-Admin: 0", "Origin: http://" + host},
		{"Origin: http://" + host},
	} {
		if a := s.Do("POST", "/admin/v1/sales/drop/pause", "", append(headers, cookie)...); a.Status != 403 {
			t.Errorf("%v: %d", headers, a.Status)
		}
	}
	for _, site := range []string{"same-site", "cross-site"} {
		for _, path := range []string{"/admin/v1/sales", "/admin/v1/live", "/admin/v1/live/events"} {
			if a := s.Do("GET", path, "", cookie, "Sec-Fetch-Site: "+site); a.Status != 403 {
				t.Errorf("%s from %s: %d", path, site, a.Status)
			}
		}
		for _, path := range []string{"/admin/sign-in", "/admin/sign-out"} {
			if a := s.Do(
				"POST",
				path,
				"name=ann&token="+url.QueryEscape(adminToken),
				cookie,
				form,
				"Sec-Fetch-Site: "+site,
			); a.Status != 403 ||
				a.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s from %s: %d", path, site, a.Status)
			}
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
	if a := s.Do(
		"POST",
		"/admin/v1/sales/drop/pause",
		"",
		cookie,
		"Sluice-Admin: 1",
		"Origin: http://"+host,
	); a.Status != 200 {
		t.Errorf("an old browser at the desk: %d", a.Status)
	}
	if a := s.Do(
		"POST",
		"/admin/v1/sales/drop/pause",
		"",
		cookie,
		"Sluice-Admin: 1",
		"Sec-Fetch-Site: same-origin",
		"Authorization: Bearer wrong",
	); a.Status != 401 {
		t.Errorf("a wrong token beside a session: %d", a.Status)
	}
}

func TestForgedAndForeignSessionsAreNone(t *testing.T) {
	s := newFakeService().serve(t)
	other, _ := session.New("another token", nil, nil).Begin("eve")
	old, _ := session.New(adminToken, nil, func() time.Time { return time.Now().Add(-session.Lifetime - time.Minute) }).
		Begin("ann")
	same, _ := session.New(adminToken, nil, nil).Begin("ann") // of another backend, or of before a restart
	for _, text := range []string{"", "x", "x.y", other, old, adminToken} {
		if a := s.Do(
			"GET",
			"/admin/v1/sales",
			"",
			"Cookie: sluice_admin="+text,
			"Sec-Fetch-Site: same-origin",
		); a.Status != 401 {
			t.Errorf("%q: %d", text, a.Status)
		}
	}
	if a := s.Do(
		"GET",
		"/admin/v1/sales",
		"",
		"Cookie: sluice_admin="+same,
		"Sec-Fetch-Site: same-origin",
	); a.Status != 200 {
		t.Errorf("after a restart: %d", a.Status)
	}
}

func TestTokenInAnAddressIsRefused(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for _, path := range []string{
		"/admin/v1/sales?token=x", "/admin/v1/sales?access_token=" + url.QueryEscape(adminToken),
		"/admin/v1/sales?q=" + url.QueryEscape(adminToken), "/admin/?Token=x",
		"/admin/sign-in?" + url.QueryEscape(adminToken), "/admin/v1/live/events?bearer=x",
	} {
		a := s.operate("GET", path, "")
		servertest.WantProblem(t, a, 400, "bad-request")
		if !strings.Contains(a.Body, "in a URL") || strings.Contains(a.Body, adminToken) {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
}

func TestSigningInIsTriedAFewTimesOnly(t *testing.T) {
	d := newFakeService()
	now := time.Now()
	cfg := d.config()
	cfg.Server.Now = func() time.Time { return now }
	s := serve(t, cfg)
	try := func(token, name string) servertest.Answer {
		return s.Do(
			"POST",
			"/admin/sign-in",
			url.Values{"name": {name}, "token": {token}}.Encode(),
			form,
			"Sec-Fetch-Site: same-origin",
		)
	}
	for i := range 5 {
		if a := try("wrong", "ann"); a.Status != 401 || !strings.Contains(a.Body, "Wrong token") {
			t.Fatalf("try %d: %d %s", i, a.Status, a.Body)
		}
	}
	for _, token := range []string{"wrong", adminToken} { // the right one too, or it could be found by trying
		if a := try(
			token,
			"ann",
		); a.Status != 429 || a.Header.Get("Retry-After") != "12" ||
			a.Header.Get("Set-Cookie") != "" {
			t.Errorf("one more: %d %v", a.Status, a.Header)
		}
	}
	if a := s.operate("GET", "/admin/v1/sales", ""); a.Status != 200 {
		t.Errorf("commands are kept out: %d", a.Status)
	}
	now = now.Add(12 * time.Second)
	if a := try(adminToken, "  "); a.Status != 400 {
		t.Errorf("without a name: %d", a.Status)
	}
	for range 20 {
		if a := try(adminToken, "ann"); a.Status != 303 {
			t.Fatalf("the right token: %d", a.Status)
		}
	}
}

// After a failed sign-in only the token must be typed again. Secrets are never in a page.
func TestSigningInAgainKeepsTheName(t *testing.T) {
	s := serve(t, newFakeService().config())
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
		got := s.Do(
			"POST",
			"/admin/sign-in",
			url.Values{"name": {c.name}, "token": {c.token}}.Encode(),
			form,
			"Sec-Fetch-Site: same-origin",
		)
		if got.Status != c.status || !strings.Contains(got.Body, c.want) {
			t.Errorf("%q with the token %q: %d, want %d and %s in\n%s", c.name, c.token, got.Status, c.status, c.want, got.Body)
		}
		if strings.Contains(got.Body, adminToken) || strings.Contains(got.Body, `"`+c.token+`"`) {
			t.Errorf("the page holds the token that was typed:\n%s", got.Body)
		}
	}
}

func TestSigningInLeadsToTheDeskOnly(t *testing.T) {
	for to, want := range map[string]string{
		"/admin/sales/x?y=1": "/admin/sales/x?y=1", "": "/admin/", "https://evil.example/admin/": "/admin/",
		"//evil.example/admin/": "/admin/", `/\evil.example`: "/admin/", `/admin/\..\..`: "/admin/",
		"/admin/../metrics": "/admin/", "/admin/%2e%2e/metrics": "/admin/", "javascript:alert(1)": "/admin/",
		"/metrics": "/admin/", "/admin/sign-out": "/admin/", "\x00": "/admin/", "/admin/x\r\nSet-Cookie: a=b": "/admin/",
	} {
		if got := localPage(to); got != want {
			t.Errorf("%q leads to %q", to, got)
		}
	}
}

func TestLiveFiguresAreToldAndAsked(t *testing.T) {
	d := newFakeService()
	cfg := d.config()
	b := newFakeLiveStats()
	cfg.LiveStats = b
	s := serve(t, cfg)
	if a := s.operate("GET", "/admin/v1/live?since=1000", ""); a.Status != 200 || strings.Count(a.Body, `"at":`) != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.operate("GET", "/admin/v1/live?since=x", ""); a.Status != 400 {
		t.Errorf("%d", a.Status)
	}
	if a := s.operate("GET", "/admin/v1/live", ""); !strings.Contains(a.Body, `"rule:ip:deny":3`) {
		t.Errorf("%s", a.Body)
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
	s.T.Helper()
	req, err := http.NewRequest("GET", "http://"+s.Addr+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.T.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	s.T.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := servertest.Contract(s.T).Valid("Live", []byte(data)); err != nil {
					s.T.Errorf("%s: %v", data, err)
				}
				return data
			}
		}
		return "end"
	}, func() { _ = resp.Body.Close() }
}

func TestDesksAreBounded(t *testing.T) {
	d := newFakeService()
	cfg := d.config()
	b := newFakeLiveStats()
	cfg.LiveStats = b
	s := serve(t, cfg)
	var hangUps []func()
	for range maxLiveStreams {
		next, hangUp := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
		next()
		hangUps = append(hangUps, hangUp)
	}
	if a := s.operate("GET", "/admin/v1/live/events", ""); a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d", a.Status)
	}
	for _, hangUp := range hangUps {
		hangUp()
	}
	at := int64(10_000)
	testenv.Eventually(t, 20*time.Second, "room again", func() bool { // a client that is gone is found out by a write
		at++
		b.add(livestats.Sample{At: at, Counts: map[string]float64{}})
		return s.operate("HEAD", "/admin/v1/live/events", "").Status == 200
	})
	next, _ := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
	next()
}

func TestDeskStreamEndsWithItsSession(t *testing.T) {
	d := newFakeService()
	cfg := d.config()
	b := newFakeLiveStats()
	cfg.LiveStats = b
	s := serve(t, cfg)
	cookie := s.signIn("ann")
	next, _ := s.watch("/admin/v1/live/events", cookie, "Sec-Fetch-Site: same-origin")
	next()
	if a := s.Do("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin"); a.Status != 303 {
		t.Fatal(a.Status)
	}
	b.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if got := next(); got != "end" {
		t.Errorf("after signing out: %s", got)
	}
}

// endedBook is the shared store of ended sessions.
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

// A copied cookie is invalid at every backend after its owner has signed out at one, and an open page there receives no
// more events.
func TestSigningOutIsSigningOutEverywhere(t *testing.T) {
	book := &endedBook{all: map[string]time.Duration{}}
	open := func() (*site, *fakeLiveStats) {
		cfg := newFakeService().config()
		b := newFakeLiveStats()
		cfg.LiveStats, cfg.EndedSessions = b, book
		return serve(t, cfg), b
	}
	here, _ := open()
	there, figures := open()
	cookie := here.signIn("ann")
	next, _ := there.watch("/admin/v1/live/events", cookie, "Sec-Fetch-Site: same-origin")
	next()
	if a := here.Do("POST", "/admin/sign-out", "", cookie, form, "Sec-Fetch-Site: same-origin"); a.Status != 303 {
		t.Fatal(a.Status)
	}
	figures.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if got := next(); got != "end" {
		t.Errorf("the other backend still sends: %s", got)
	}
	if a := there.Do("GET", "/admin/v1/sales", "", cookie, "Sec-Fetch-Site: same-origin"); a.Status != 401 {
		t.Errorf("the other backend answers %d", a.Status)
	}
	if a := there.Do(
		"GET",
		"/admin/",
		"",
		cookie,
		"Sec-Fetch-Site: same-origin",
	); a.Status != 303 ||
		!strings.Contains(a.Header.Get("Location"), "sign-in") {
		t.Errorf("the other backend shows %d", a.Status)
	}
	for _, life := range book.all {
		if life <= session.Lifetime-time.Minute || life > session.Lifetime {
			t.Errorf("remembered for %s", life)
		}
	}
}
