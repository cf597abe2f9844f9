package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// openConsoleShop starts `sluice up` on a real Redis and PostgreSQL. The database rejects orders of buyers whose names
// begin with "cursed": they become dead letters.
func openConsoleShop(t testing.TB) *shop {
	s, env := newShop(t)
	pg, redis := testenv.SharedPostgres(t), testenv.StartRedis(t)
	s.database, s.redis = pg.URL, redis
	s.edge = testenv.Launch(t, binary,
		append(env, "SLUICE_REDIS_URL=redis://"+redis.Addr+"/0", "SLUICE_DATABASE_URL="+pg.URL), "up", "--data", t.TempDir())
	testenv.AwaitOK(s.t, s.base+"/readyz")
	s.sql(`CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.buyer LIKE 'cursed%' AND NEW.status <> 'cancelled' THEN RAISE EXCEPTION 'the table refuses %', NEW.buyer USING ERRCODE = 'integrity_constraint_violation'; END IF;
		RETURN NEW; END $$`)
	s.sql(`CREATE TRIGGER cursed BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION curse()`)
	return s
}

// A page that is opened while Redis is down explains it, and becomes the page of the sale when Redis is back. The buyer
// stays signed in.
func TestPageDuringAnOutageReloads(t *testing.T) {
	s := openConsoleShop(t)
	s.create("outage", nil)
	s.redis.Stop()
	s.settled(func() bool { _, code := s.get("/s/outage"); return code == http.StatusServiceUnavailable }, "the outage")
	b := open(t, newPerson(t), s.page("outage", "vic"))
	b.await("the explanation", `document.body.innerText.includes("reloads automatically")`)
	s.redis.Start()
	b.ready("Buy now")
	b.says("name", "vic")
	b.clean()
}

func (s *shop) sql(statement string) { s.t.Helper(); execSQL(s.t, s.database, statement) }

// execSQL executes a statement in the PostgreSQL database at a URL.
func execSQL(t testing.TB, url, statement string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// addDeadLetters buys orders that become dead letters.
func (s *shop) addDeadLetters(saleID string, n int) {
	s.t.Helper()
	for i := range n {
		s.settled(func() bool { return s.buy(saleID, fmt.Sprintf("cursed-%s-%d", saleID, i)) == http.StatusAccepted },
			"an accepted order") // the edge limits the rate
	}
	s.settled(func() bool { return len(s.dead(saleID)) == n }, fmt.Sprintf("%d dead letters of %s", n, saleID))
}

// dead returns the keys of a sale's dead letters.
func (s *shop) dead(saleID string) (keys []string) {
	s.t.Helper()
	list, _ := s.adminAPI(http.MethodGet, "/dead?sale="+saleID, nil)["dead"].([]any)
	for _, d := range list {
		keys = append(keys, fmt.Sprint(d.(map[string]any)["key"]))
	}
	return keys
}

// atConsole opens a page of the console and signs in with the keyboard.
func (s *shop) atConsole(t testing.TB, who person, name, path string) *tab {
	t.Helper()
	b := open(t, who, s.admin+"/admin/"+path)
	b.await("the sign-in form", `document.querySelector("input[name=token]") || document.querySelector("h1")`)
	if b.eval(`Boolean(document.querySelector("input[name=token]"))`) == "true" {
		b.await("the prompt for the name", `document.activeElement.name === "name"`)
		b.keys(name + kb.Tab + adminToken + kb.Enter)
	}
	b.await("the console", `document.querySelector("header nav") && document.querySelector("main h1")`)
	return b
}

func (b *tab) keys(keys string) { b.t.Helper(); b.do(chromedp.KeyEvent(keys)) }

// text presses a button with this text: in the dialog, if one is open, or else on the page.
func (b *tab) text(words string) {
	b.t.Helper()
	buttons := `[...(document.querySelector("dialog[open]") || document).querySelectorAll("button")]`
	b.click(buttons + `.find((b) => !b.disabled && b.textContent.trim() === ` + quote(words) + `)`)
}

// shows waits until the page's content has these words.
func (b *tab) shows(words string) {
	b.t.Helper()
	b.await("the page to show "+words, `document.querySelector("main").innerText.includes(`+quote(words)+`)`)
}

// createSaleWithOrder creates an open sale of three units, one of which bob has bought.
func (s *shop) createSaleWithOrder(id, title string) {
	s.t.Helper()
	s.createSale(id, title, 3, time.Now().Add(-time.Second))
	if code := s.buy(id, "bob"); code != http.StatusAccepted {
		s.t.Fatal(code)
	}
	s.settled(func() bool { return s.ordered(id) == 1 }, "a row")
}

// lines returns the last n lines of the action log, "actor action", newest first. Those of the audit, which may pause
// the sale of another test at any time, are left out.
func (s *shop) lines(n int) string {
	s.t.Helper()
	list, _ := s.adminAPI(http.MethodGet, fmt.Sprintf("/log?limit=%d", n+10), nil)["log"].([]any)
	var lines []string
	for _, l := range list {
		if line := l.(map[string]any); line["actor"] != "audit" && len(lines) < n {
			lines = append(lines, fmt.Sprintf("%v %v", line["actor"], line["action"]))
		}
	}
	return strings.Join(lines, ", ")
}

// promise evaluates a script and awaits its promise.
func (b *tab) promise(script string) string {
	b.t.Helper()
	var out string
	b.do(chromedp.Evaluate(script, &out, awaited))
	return out
}

// visit opens another address in the same tab.
func (b *tab) visit(url string) { b.t.Helper(); b.do(chromedp.Navigate(url)) }
