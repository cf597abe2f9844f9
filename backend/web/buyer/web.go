// Package web makes the pages that buyers see, from what it is told of sales. Templates, styles, scripts and words
// are embedded in the binary. It knows no HTTP library and asks nobody anything; what a page shows after it was made,
// its script asks of the public API.
package buyer

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/backend/sale"
)

//go:embed page text
var files embed.FS

// Sale is one sale as a page shows it. A zero ClosesAt means that it has no end.
type Sale struct {
	ID, Title         string
	Price             sale.Price
	Stock, Left       int64
	PerBuyer          int
	State             sale.State
	OpensAt, ClosesAt time.Time
}

// Page is one page, ready to send with these headers. Nobody may change its bytes.
type Page struct {
	Body    []byte
	Lang    Lang
	Headers []Header
}

// Config is what New needs; the zero value is a set-up in which buyers paste their token.
type Config struct {
	// SignIn is where buyers without a token are sent, an http or https URL; "{url}" in it stands for the page to come
	// back to, with #token=... added to it. Empty: the page has a field for a token.
	SignIn string
	Now    func() time.Time // nil: time.Now
}

// Pages makes pages. It is safe for concurrent use.
type Pages struct {
	cfg       Config
	templates *template.Template
	words     map[Lang]words
	assets    Assets
	script    string // in a URL, like icon
	icon      string
	style     template.CSS
	policy    string
}

// New reads what is embedded. The error says what is wrong with the configuration.
func New(cfg Config) (*Pages, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := checkSignIn(cfg.SignIn); err != nil {
		return nil, err
	}
	p := &Pages{cfg: cfg, words: map[Lang]words{}}
	for _, lang := range langs {
		text, err := files.ReadFile("text/" + string(lang) + ".json")
		if err != nil {
			return nil, err
		}
		if p.words[lang], err = readWords(text); err != nil {
			return nil, fmt.Errorf("web: text/%s.json: %w", lang, err)
		}
	}
	style, err := files.ReadFile("page/page.css")
	if err != nil {
		return nil, err
	}
	p.style = template.CSS(style) //nolint:gosec // our own file
	hash := sha256.Sum256(style)
	p.policy = contentPolicy("'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'")
	if err := p.addAssets(); err != nil {
		return nil, err
	}
	p.templates, err = template.New("").ParseFS(files, "page/*.html")
	return p, err
}

// contentPolicy lets a page run our script and nothing else: no inline script, nobody's frame, no other host. The
// style is in the page, so that the first paint needs one round trip, and is named by its hash.
func contentPolicy(style string) string {
	return "default-src 'none'; script-src 'self'; style-src " + style + "; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Header is one response header.
type Header struct{ Name, Value string }

// headers go with every page.
func (p *Pages) headers() []Header {
	return []Header{
		{"Content-Security-Policy", p.policy},
		{"X-Content-Type-Options", "nosniff"},
		{"X-Frame-Options", "DENY"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
		{"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
	}
}

// view is what the templates see.
type view struct {
	Lang, Other       Lang
	Text              words
	TextJSON          string
	Title             string
	Style             template.CSS
	Script, Icon      string
	SignIn            string
	Now               int64 // Unix milliseconds
	Sale              *saleView
	Sales             []saleView
	MoreSay           string // of sales that are not listed
	Missing, NotReady bool
}

type saleView struct {
	Sale
	Price, Left        string // in words
	Opens, Closes      int64  // Unix milliseconds; no end is 0
	OpensISO, OpensSay string
	StateSay           string
}

// Sale is the page of one sale.
func (p *Pages) Sale(lang Lang, s Sale) (Page, error) {
	v := p.view(lang)
	shown := v.saleView(s)
	v.Sale, v.Title = &shown, plain(s.Title)
	return p.render("sale.html", v)
}

// mostListed bounds the page of all sales.
const mostListed = 200

// Sales is the page that lists sales: those that one can buy from or wait for come first, and at most 200 of all.
func (p *Pages) Sales(lang Lang, list []Sale) (Page, error) {
	v := p.view(lang)
	v.Title = v.Text["sales"]
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Sale) int {
		if d := rank(a.State) - rank(b.State); d != 0 {
			return d
		}
		if a.State == sale.StateScheduled {
			return a.OpensAt.Compare(b.OpensAt)
		}
		return b.OpensAt.Compare(a.OpensAt)
	})
	if len(list) > mostListed {
		v.MoreSay = fill(v.Text["sales.more"], "n", fmt.Sprint(len(list)-mostListed))
		list = list[:mostListed]
	}
	for _, s := range list {
		v.Sales = append(v.Sales, v.saleView(s))
	}
	return p.render("sales.html", v)
}

func rank(s sale.State) int {
	return slices.Index([]sale.State{sale.StateOpen, sale.StateScheduled, sale.StatePaused, sale.StateSoldOut, sale.StateClosed}, s)
}

// Missing is the page for a sale that does not exist.
func (p *Pages) Missing(lang Lang) (Page, error) {
	v := p.view(lang)
	v.Title, v.Missing = v.Text["missing"], true
	return p.render("notice.html", v)
}

// NotReady is the page for when nobody can tell of the sale just now. It tries again by itself.
func (p *Pages) NotReady(lang Lang) (Page, error) {
	v := p.view(lang)
	v.Title, v.NotReady = v.Text["notready"], true
	return p.render("notice.html", v)
}

func (p *Pages) view(lang Lang) *view {
	text, ok := p.words[lang]
	if !ok {
		lang, text = English, p.words[English]
	}
	encoded, err := json.Marshal(map[string]string(text))
	if err != nil {
		panic(err) // a map of strings
	}
	return &view{
		Lang: lang, Other: lang.other(), Text: text, TextJSON: string(encoded), Style: p.style, SignIn: p.cfg.SignIn, Now: p.cfg.Now().UnixMilli(),
		Script: "/assets/" + p.script, Icon: "/assets/" + p.icon,
	}
}

func (v *view) saleView(s Sale) saleView {
	shown := saleView{
		Sale: s, Price: formatPrice(v.Lang, s.Price), Opens: s.OpensAt.UnixMilli(), OpensISO: s.OpensAt.UTC().Format(time.RFC3339), OpensSay: s.OpensAt.UTC().Format("2006-01-02 15:04 UTC"),
		StateSay: v.Text["state."+string(s.State)], Left: fill(v.Text["left"], "n", grouped(strconv.FormatInt(s.Left, 10)), "stock", grouped(strconv.FormatInt(s.Stock, 10))),
	}
	if !s.ClosesAt.IsZero() {
		shown.Closes = s.ClosesAt.UnixMilli()
	}
	return shown
}

func (p *Pages) render(name string, v *view) (Page, error) {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, v); err != nil {
		return Page{}, fmt.Errorf("web: %s: %w", name, err)
	}
	return Page{Body: buf.Bytes(), Lang: v.Lang, Headers: p.headers()}, nil
}

// checkSignIn refuses a place that a browser would run, or that names none.
func checkSignIn(raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(raw, "{url}", "x"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return fmt.Errorf("the sign-in page must be an http or https URL such as https://shop.example/login?back={url}, not %q", raw)
	}
	return nil
}

// plain is a title for where nothing can keep its direction apart from what stands around it: without the characters
// that change it.
func plain(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, title)
}

// fill puts values in the places of a text.
func fill(text string, pairs ...string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		text = strings.ReplaceAll(text, "{"+pairs[i]+"}", pairs[i+1])
	}
	return text
}

// words are the texts of one language, by key.
type words map[string]string

func readWords(text []byte) (words, error) {
	var w words
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if strings.TrimSpace(w[key]) == "" {
			return nil, fmt.Errorf("%s says nothing", key)
		}
	}
	return w, nil
}
