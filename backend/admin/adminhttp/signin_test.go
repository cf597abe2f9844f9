package adminhttp

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admin/livestats"
	"sluice/backend/admin/session"
	"sluice/backend/web/httpserver/servertest"
)

const form = "Content-Type: application/x-www-form-urlencoded"

// fromConsole is the header of a request that a page of the console sends.
const fromConsole = "Sec-Fetch-Site: same-origin"

// submit sends the sign-in form.
func (s *site) submit(name, token, to string, headers ...string) servertest.Answer {
	s.T.Helper()
	values := url.Values{"name": {name}, "token": {token}, "to": {to}}
	return s.Do("POST", "/admin/sign-in", values.Encode(), append(headers, form, fromConsole)...)
}

// signIn signs in and returns the header that a browser then sends.
func (s *site) signIn(name string) (cookie string) {
	s.T.Helper()
	a := s.submit(name, adminToken, "/admin/dead?sale=x")
	if a.Status != 303 || a.Header.Get("Location") != "/admin/dead?sale=x" {
		s.T.Fatalf("signing in: %d %v %s", a.Status, a.Header, a.Body)
	}
	set, err := http.ParseSetCookie(a.Header.Get("Set-Cookie"))
	if err != nil {
		s.T.Fatal(err)
	}
	if !set.HttpOnly || set.SameSite != http.SameSiteLaxMode || set.Path != "/admin" || set.Secure ||
		set.Domain != "" || strings.Contains(set.Value, adminToken) {
		s.T.Errorf("the cookie is %s", set)
	}
	return "Cookie: " + set.Name + "=" + set.Value
}

func (s *site) signOut(cookie string) {
	s.T.Helper()
	a := s.Do("POST", "/admin/sign-out", "", cookie, form, fromConsole)
	if a.Status != 303 || !strings.Contains(a.Header.Get("Set-Cookie"), "sluice_admin=;") {
		s.T.Fatalf("signing out: %d %v", a.Status, a.Header)
	}
}

func TestSessionReplacesTheToken(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	cookie := s.signIn("Zoë 鞋")
	if got := d.called(); got != "Zoë 鞋 records admin.sign_in of Zoë 鞋: from 127.0.0.1" {
		t.Errorf("called %s", got)
	}
	if a := s.Do("GET", "/admin/v1/sales/drop", "", cookie, fromConsole); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.called()
	a := s.Do("POST", "/admin/v1/sales/drop/pause", "", cookie, fromConsole, "Sluice-Admin: 1", "X-Actor: another")
	if a.Status != 200 || d.called() != "Zoë 鞋 sets drop to paused" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	page := s.Do("GET", "/admin/", "", cookie)
	if page.Status != 200 || !strings.Contains(page.Body, "Zoë 鞋") || page.Header.Get("Cache-Control") != "no-store" ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("the page: %d %v", page.Status, page.Header)
	}
	if short := s.Do("GET", "/admin", "", cookie); short.Status != 200 {
		t.Errorf("the page without a trailing slash: %d", short.Status)
	}
	s.signOut(cookie)
	if a := s.Do("GET", "/admin", ""); a.Status != 303 || a.Header.Get("Location") != "/admin/sign-in" {
		t.Errorf("without a session: %d %v", a.Status, a.Header)
	}
	if a := s.Do("GET", "/admin/v1/sales/drop", "", cookie, fromConsole); a.Status != 401 {
		t.Errorf("after signing out: %d", a.Status)
	}
	page = s.Do("GET", "/admin/sales/drop", "", cookie)
	if page.Status != 303 || page.Header.Get("Location") != "/admin/sign-in?to=%2Fadmin%2Fsales%2Fdrop" {
		t.Errorf("after signing out the page is %d %v", page.Status, page.Header)
	}
}

// A browser with a session gets the navigation for a path that the console does not have. Other clients get a problem.
func TestUnknownPageOfTheConsole(t *testing.T) {
	s := newFakeService().serve(t)
	cookie := s.signIn("ann")
	const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, path := range []string{"/admin/nosuch", "/admin/refunds/1"} {
		a := s.Do("GET", path, "", cookie, browser)
		if a.Status != 404 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") ||
			!strings.Contains(a.Body, `<nav aria-label="Console">`) || !strings.Contains(a.Body, "<h1>Not found</h1>") {
			t.Errorf("%s in a browser: %d %v %.300s", path, a.Status, a.Header, a.Body)
		}
		for _, headers := range [][]string{{cookie}, {cookie, "Accept: */*"}, {browser}} {
			a := s.Do("GET", path, "", headers...)
			if a.Status != 404 || a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s with %v: %d %v", path, headers, a.Status, a.Header)
			}
		}
	}
}

// Buyers see the cancellations of the actor "hold" as expired, so no admin has that name.
func TestReservedNamesAreRejected(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for _, name := range []string{"audit", "hold", " hold ", "rebuild", "sluice", "unknown"} {
		a := s.submit(name, adminToken, "")
		if a.Status != 400 || a.Header.Get("Set-Cookie") != "" ||
			!strings.Contains(a.Body, "reserved for automatic actions") {
			t.Errorf("%q: %d %s", name, a.Status, a.Body)
		}
	}
	a := s.Do("POST", "/admin/v1/orders/5/cancel", "", "Authorization: Bearer "+adminToken, "X-Actor: hold")
	if a.Status != 400 || !strings.Contains(a.Body, "must not be audit, hold, rebuild, sluice or unknown") {
		t.Errorf("X-Actor: %d %s", a.Status, a.Body)
	}
	if got := d.called(); got != "" {
		t.Errorf("called %s", got)
	}
}

// Behind a proxy that terminates TLS, the browser sends the session over TLS alone.
func TestSessionCookieIsSecureBehindTLS(t *testing.T) {
	s := newFakeService().serve(t)
	for proto, secure := range map[string]bool{"https": true, "HTTPS": true, "http": false, "": false} {
		a := s.submit("ann", adminToken, "", "X-Forwarded-Proto: "+proto)
		cookie := strings.ToLower(a.Header.Get("Set-Cookie"))
		if a.Status != 303 || strings.Contains(cookie, "; secure") != secure {
			t.Errorf("%q: %d %s", proto, a.Status, cookie)
		}
	}
}

func TestSessionIsRejectedFromOtherOrigins(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	cookie := s.signIn("ann")
	d.called()
	const pause, marked = "/admin/v1/sales/drop/pause", "Sluice-Admin: 1"
	origin := "Origin: http://" + s.Addr
	for _, headers := range [][]string{
		nil, {marked}, {fromConsole}, {origin}, {"Sluice-Admin: 0", origin},
		{marked, "Sec-Fetch-Site: same-site"}, {marked, "Sec-Fetch-Site: cross-site"}, {marked, "Sec-Fetch-Site: none"},
		{marked, "Origin: http://evil.example"}, {marked, "Origin: null"}, {marked, origin + ".evil.example"},
	} {
		if a := s.Do("POST", pause, "", append(headers, cookie)...); a.Status != 403 {
			t.Errorf("%v: %d", headers, a.Status)
		}
	}
	for _, site := range []string{"same-site", "cross-site"} {
		from := "Sec-Fetch-Site: " + site
		for _, path := range []string{"/admin/v1/sales", "/admin/v1/live", "/admin/v1/live/events"} {
			if a := s.Do("GET", path, "", cookie, from); a.Status != 403 {
				t.Errorf("%s from %s: %d", path, site, a.Status)
			}
		}
		for _, path := range []string{"/admin/sign-in", "/admin/sign-out"} {
			a := s.Do("POST", path, "name=ann&token="+url.QueryEscape(adminToken), cookie, form, from)
			if a.Status != 403 || a.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s from %s: %d", path, site, a.Status)
			}
		}
	}
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
	if a := s.Do("POST", pause, "", cookie, marked, origin); a.Status != 200 {
		t.Errorf("an old browser at the console: %d", a.Status)
	}
	if a := s.Do("POST", pause, "", cookie, marked, fromConsole, "Authorization: Bearer wrong"); a.Status != 401 {
		t.Errorf("a wrong token beside a session: %d", a.Status)
	}
}

func TestForgedAndExpiredSessionsAreRejected(t *testing.T) {
	s := newFakeService().serve(t)
	other, _ := session.New("another token", nil, time.Now).Begin("eve")
	past := func() time.Time { return time.Now().Add(-session.Lifetime - time.Minute) }
	old, _ := session.New(adminToken, nil, past).Begin("ann")
	same, _ := session.New(adminToken, nil, time.Now).Begin("ann") // from another backend, or from before a restart
	for text, status := range map[string]int{
		"": 401, "x": 401, "x.y": 401, other: 401, old: 401, adminToken: 401, same: 200,
	} {
		if a := s.Do("GET", "/admin/v1/sales", "", "Cookie: sluice_admin="+text, fromConsole); a.Status != status {
			t.Errorf("%q: %d, want %d", text, a.Status, status)
		}
	}
}

func TestTokenInURLIsRejected(t *testing.T) {
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
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
}

func TestSignInAttemptsAreLimited(t *testing.T) {
	d := newFakeService()
	now := time.Now()
	cfg := d.config()
	cfg.Server.Now = func() time.Time { return now }
	s := serve(t, cfg)
	try := func(token, name string) servertest.Answer { return s.submit(name, token, "") }
	for i := range 5 {
		if a := try("wrong", "ann"); a.Status != 401 || !strings.Contains(a.Body, "Wrong token") {
			t.Fatalf("try %d: %d %s", i, a.Status, a.Body)
		}
	}
	for _, token := range []string{"wrong", adminToken} { // the right one too; otherwise repeated attempts would find it
		a := try(token, "ann")
		if a.Status != 429 || a.Header.Get("Retry-After") != "12" || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("one more: %d %v", a.Status, a.Header)
		}
	}
	if a := s.operate("GET", "/admin/v1/sales", ""); a.Status != 200 {
		t.Errorf("commands are rejected: %d", a.Status)
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

// After a failed sign-in, the form keeps the name and not the token. Pages never contain secrets.
func TestFailedSignInKeepsTheName(t *testing.T) {
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
		got := s.submit(c.name, c.token, "")
		if got.Status != c.status || !strings.Contains(got.Body, c.want) {
			t.Errorf("%q with the token %q: %d, want %d and %s in\n%s", c.name, c.token, got.Status, c.status, c.want, got.Body)
		}
		if strings.Contains(got.Body, adminToken) || strings.Contains(got.Body, `"`+c.token+`"`) {
			t.Errorf("the page holds the token that was typed:\n%s", got.Body)
		}
	}
}

func TestSignInRedirectsToTheConsoleOnly(t *testing.T) {
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

// endedStore is the shared store of ended sessions.
type endedStore struct {
	mu  sync.Mutex
	all map[string]time.Duration
}

func (b *endedStore) End(_ context.Context, id string, life time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[id] = life
	return nil
}

func (b *endedStore) Ended(_ context.Context, id string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, over := b.all[id]
	return over, nil
}

// A copied cookie is invalid at every backend after its owner has signed out at one. An open page of either backend
// receives no more events.
func TestSignOutEndsTheSessionInEveryBackend(t *testing.T) {
	store := &endedStore{all: map[string]time.Duration{}}
	here, hereStats := serveLive(t, store)
	there, thereStats := serveLive(t, store)
	cookie := here.signIn("ann")
	nextHere, _ := here.watch("/admin/v1/live/events", cookie, fromConsole)
	nextThere, _ := there.watch("/admin/v1/live/events", cookie, fromConsole)
	nextHere()
	nextThere()
	here.signOut(cookie)
	hereStats.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	thereStats.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if got := nextHere(); got != "end" {
		t.Errorf("the backend still sends: %s", got)
	}
	if got := nextThere(); got != "end" {
		t.Errorf("the other backend still sends: %s", got)
	}
	if a := there.Do("GET", "/admin/v1/sales", "", cookie, fromConsole); a.Status != 401 {
		t.Errorf("the other backend answers %d", a.Status)
	}
	page := there.Do("GET", "/admin/", "", cookie, fromConsole)
	if page.Status != 303 || !strings.Contains(page.Header.Get("Location"), "sign-in") {
		t.Errorf("the other backend shows %d", page.Status)
	}
	for _, life := range store.all {
		if life <= session.Lifetime-time.Minute || life > session.Lifetime {
			t.Errorf("remembered for %s", life)
		}
	}
}
