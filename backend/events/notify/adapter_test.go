package notify_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"unicode"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
)

func TestAdaptersAreReadFromAList(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "log": "log", " log , ": "log", "log?level=info&name=loud,log": "loud log",
		"smtp://u:p@h:587?from=a@b.example&to={buyer},ntfy://h/orders-{buyer}?lang=zh-CN": "smtp ntfy",
		"smtps://h?from=a@b.example&to={buyer}@c.example":                                 "smtp",
		"smtp://h?from=a@b.example&tls=none&to=box@c.example":                             "smtp",
		"ntfy+http://127.0.0.1:1/x?token=tk_1,ntfy://u:p@h/y?name=second":                 "ntfy second",
	} {
		all, err := notify.ParseAdapters(list, quiet)
		var names []string
		for _, a := range all {
			names = append(names, a.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for list, want := range map[string]string{
		"carrier-pigeon":                     "no adapter",
		"http://h/x":                         "no adapter",
		"log://h":                            "nothing but parameters",
		"log?level=loud":                     "level",
		"log?lvl=info":                       `"lvl" is not known`,
		"log?name=web":                       "reserved",
		"log?name=A b":                       "name must be",
		"log,log":                            "two adapters",
		"log?lang=tlh":                       "lang",
		"log?level=info&level=debug":         "twice",
		"smtp://SECRET\x7f@h":                "no URL",
		"smtp://u:SECRET%@h?from=a@b.c":      "no URL",
		"smtp:h":                             "no host",
		"smtp://h":                           "from must be",
		"smtp://h?from=a@b.c,d@e.f":          "no adapter",
		"smtp://h?from=Shop <a@b.c>":         "from must be",
		"smtp://h?from=a@b.c%0d%0aBcc:x@y.z": "from must be",
		"smtp://h?from=a@b.c&to=a@b.c%0d%0aBcc: x@y":  "to must be",
		"smtp://h?from=a@b.c&to={buyer} <x>":          "to must be",
		"smtp://u:SECRET@h?from=a@b.c&tls=none":       "tls must be",
		"smtp://h?from=a@b.c&tls=perhaps":             "tls must be",
		"smtp://h:0?from=a@b.c":                       "port",
		"smtp://h/path?from=a@b.c":                    "no path",
		"ntfy://h":                                    "topic",
		"ntfy://h/a/b":                                "topic",
		"ntfy://h/{buyer}-" + strings.Repeat("x", 64): "topic",
		"ntfy:///x":                                   "no host",
		"ntfy://u:SECRET@h/x?token=SECRET":            "not both",
		"ntfy://h/x?token=a%0ab":                      "printable",
		strings.Repeat("log?name=a,", 2):              "two adapters",
		strings.Repeat("z", 300) + "://h":             "no adapter",
	} {
		_, err := notify.ParseAdapters(list, quiet)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsFunc(err.Error(), unicode.IsControl) || strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 250 {
			t.Errorf("%q: %v; want one line with %q", list, err, want)
		}
	}
}

func TestTextsSayWhatHappenedInBothLanguages(t *testing.T) {
	m := notify.Message{Type: events.Created, OrderID: created(1).OrderID, SaleID: "shoe", Was: sale.StatusQueued}
	seen := map[string]bool{}
	for _, l := range []notify.Lang{notify.English, notify.Chinese} {
		for _, what := range []struct {
			kind events.Type
			was  sale.Status
		}{{events.Created, sale.StatusQueued}, {events.Paid, sale.StatusCreated}, {events.Cancelled, sale.StatusCreated}, {events.Cancelled, sale.StatusQueued}} {
			m.Type, m.Was = what.kind, what.was
			text := m.Text(l)
			if seen[text.Title] || !strings.Contains(text.Body, m.OrderID.String()) || !strings.Contains(text.Body, "shoe") || strings.Contains(text.Body, "%!") {
				t.Errorf("%s %s: %+v", l, what.kind, text)
			}
			seen[text.Title] = true
		}
	}
	m.SaleID = "a\r\nBcc: x\x00\u202e\u2028b"
	if text := m.Text(notify.English); strings.ContainsAny(text.Body, "\r\n\x00\u202e\u2028") {
		t.Errorf("%q", text.Body)
	}
	if got, want := m.Text("xx"), m.Text(notify.English); got != want {
		t.Errorf("an unknown language: %+v", got)
	}
}

// mailServer speaks enough SMTP to take mails, and refuses what it is told to.
type mailServer struct {
	addr string
	mu   sync.Mutex
	got  []string // envelope and text of each mail
	rcpt string   // answer to RCPT TO; "" takes it
	data string   // answer to the text
	quit string
}

func startMail(t *testing.T) *mailServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{addr: ln.Addr().String()}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.talk(c)
		}
	}()
	return s
}

func (s *mailServer) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(line string) { fmt.Fprintf(c, "%s\r\n", line) }
	say("220 test")
	var mail strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		rcpt, data, quit := s.rcpt, s.data, s.quit
		s.mu.Unlock()
		switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " "); {
		case verb == "EHLO" || verb == "HELO":
			say("250-test\r\n250 8BITMIME")
		case verb == "RCPT" && rcpt != "":
			say(rcpt)
		case verb == "MAIL" || verb == "RCPT":
			mail.WriteString(line)
			say("250 ok")
		case verb == "DATA":
			say("354 go on")
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				mail.WriteString(line)
			}
			if data != "" {
				say(data)
				continue
			}
			s.mu.Lock()
			s.got = append(s.got, mail.String())
			s.mu.Unlock()
			mail.Reset()
			say("250 taken")
		case verb == "QUIT":
			if quit != "" {
				return
			}
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (s *mailServer) set(rcpt, data, quit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcpt, s.data, s.quit = rcpt, data, quit
}

func (s *mailServer) mails() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

func adapter(t *testing.T, list string) notify.Adapter {
	t.Helper()
	all, err := notify.ParseAdapters(list, quiet)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

func message(buyer string) notify.Message {
	e := created(1)
	return notify.Message{ID: e.ID, Type: e.Type, OrderID: e.OrderID, SaleID: "shoe", Buyer: buyer, Was: sale.StatusQueued, At: e.At}
}

func TestMailIsSentToTheBuyerAlone(t *testing.T) {
	t.Parallel()
	s := startMail(t)
	a := adapter(t, "smtp://"+s.addr+"?from=shop@example.com&to={buyer}&tls=none&lang=zh")
	s.set("", "", "hang up") // a goodbye that fails is no failure
	if err := a.Send(t.Context(), message("ann@example.net")); err != nil {
		t.Fatal(err)
	}
	envelope, text, _ := strings.Cut(s.mails()[0], "RCPT TO:<ann@example.net>\r\n")
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil || !strings.HasPrefix(envelope, "MAIL FROM:<shop@example.com>") {
		t.Fatalf("%v\n%s", err, s.mails()[0])
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "下单成功" {
		t.Errorf("subject %q, %v", subject, err)
	}
	if got := m.Header.Get("Message-ID"); got != "<"+created(1).ID+"@example.com>" {
		t.Errorf("a copy would be another mail: %s", got)
	}
	if m.Header.Get("Auto-Submitted") != "auto-generated" || m.Header.Get("To") != "<ann@example.net>" {
		t.Errorf("%v", m.Header)
	}
	for _, buyer := range []string{"ann", "a@b.c,d@e.f", "a@b.c\r\nBcc: d@e.f", "Ann <a@b.c>", "a@b.c>\r\nDATA", "", "a@b.c d@e.f", "undisclosed: a@b.c;", "<a@b.c>"} {
		if err := a.Send(t.Context(), message(buyer)); !errors.Is(err, notify.ErrPermanent) {
			t.Errorf("buyer %q: %v, want a permanent error", buyer, err)
		}
	}
	if n := len(s.mails()); n != 1 {
		t.Errorf("%d mails", n)
	}
}

func TestMailServersRefusalsAreForThisMailOrForNow(t *testing.T) {
	t.Parallel()
	s := startMail(t)
	a := adapter(t, "smtp://"+s.addr+"?from=shop@example.com&tls=none")
	for _, c := range []struct {
		rcpt, data string
		permanent  bool
	}{{"550 no such user", "", true}, {"450 later", "", false}, {"", "554 spam", true}, {"", "451 later", false}} {
		s.set(c.rcpt, c.data, "")
		err := a.Send(t.Context(), message("ann@example.net"))
		if err == nil || errors.Is(err, notify.ErrPermanent) != c.permanent {
			t.Errorf("%q %q: %v; permanent should be %v", c.rcpt, c.data, err, c.permanent)
		}
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, list := range []string{"smtp://" + nobody.Addr().String() + "?from=a@b.example&tls=none", "smtp://" + s.addr + "?from=a@b.example"} { // the second wants TLS, and there is none
		if err := adapter(t, list).Send(t.Context(), message("ann@example.net")); err == nil || errors.Is(err, notify.ErrPermanent) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestNtfyIsToldAsJSON(t *testing.T) {
	t.Parallel()
	status, hits := 200, 0
	var got struct {
		Topic, Title, Message string
		Tags                  []string
	}
	var auth string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &got); err != nil || r.URL.Path != "/" {
			t.Errorf("%s %s: %v", r.URL, b, err)
		}
		auth = r.Header.Get("Authorization")
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	a := adapter(t, "ntfy+http://"+host+"/orders-{buyer}?token=tk_x")
	if err := a.Send(t.Context(), message("ann")); err != nil {
		t.Fatal(err)
	}
	if got.Topic != "orders-ann" || got.Title != "Your order is in" || got.Tags[0] != created(1).ID || auth != "Bearer tk_x" {
		t.Errorf("%+v %s", got, auth)
	}
	for code, permanent := range map[int]bool{400: true, 413: true, 401: false, 403: false, 429: false, 500: false, 302: false} {
		status = code
		if err := a.Send(t.Context(), message("ann")); err == nil || errors.Is(err, notify.ErrPermanent) != permanent {
			t.Errorf("%d: %v", code, err)
		}
	}
	if hits != 8 {
		t.Errorf("%d requests: a redirect was followed", hits)
	}
	for _, buyer := range []string{"a/b", "a b", strings.Repeat("x", 60), "../x", "日本"} {
		if err := a.Send(t.Context(), message(buyer)); !errors.Is(err, notify.ErrPermanent) {
			t.Errorf("buyer %q: %v", buyer, err)
		}
	}
}
