// Package buyer renders the pages for buyers from the state of sales. Templates, styles, scripts and texts are
// embedded in the binary. A page's script reads later changes from the public API. The package does not depend on an
// HTTP library and reads no store.
package buyer

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/backend/sale"
	"sluice/backend/web/page"
	"sluice/internal/htmltemplate"
)

//go:embed page text
var files embed.FS

// scripts are joined into one file, in this order.
var scripts = []string{
	"page/text.js", "page/clock.js", "page/wait.js", "page/api.js", "page/store.js", "page/buyer.js",
	"page/watchsale.js", "page/watchorders.js", "page/show.js", "page/sale.js",
}

// Sale is one sale as a page shows it. A zero ClosesAt means that the sale has no end.
type Sale struct {
	sale.Sale
	Left  int64
	State sale.State
}

// Config configures New. With the zero value, buyers paste their token, and pages have no link to a checkout.
type Config struct {
	// SignIn is the http or https URL for buyers without a token. It contains "{url}", which is replaced by the page to
	// return to, with #token=... appended. Empty: the page has a field for the token.
	SignIn string
	// Checkout is the http or https URL at which the shop takes the payment of an order. "{order}" and "{sale}" are
	// replaced by their ids. Pages link to it while the hold of an order lasts. Empty: no link.
	Checkout string
	// FrameAncestors are the origins of sites that may show the pages in a frame, such as https://shop.example or
	// https://*.shop.example. Empty: none may.
	FrameAncestors []string
	Now            func() time.Time // nil: time.Now
}

// Pages renders pages. It is safe for concurrent use.
type Pages struct {
	cfg       Config
	templates *htmltemplate.Template
	texts     map[Lang]texts
	assets    page.Assets
	script    string // URL of the script of a sale's page
	reload    string // URL of the script of NotReady
	icon      string // URL
	style     htmltemplate.CSS
	policy    string // ends with the sources of images
	recent    recentPages
}

// New returns Pages. The error describes what is wrong with the configuration.
func New(cfg Config) (*Pages, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := errors.Join(
		checkURL("--sign-in", cfg.SignIn, "https://shop.example/login?back={url}", "{url}"),
		checkURL("--checkout", cfg.Checkout, "https://shop.example/pay?order={order}&sale={sale}", "{order}", "{sale}"),
		checkAncestors(cfg.FrameAncestors),
	); err != nil {
		return nil, err
	}
	script, scriptErr := page.Script(files, scripts...)
	reload, reloadErr := page.Script(files, "page/reload.js")
	style, styleErr := files.ReadFile("page/page.css")
	icon, iconErr := files.ReadFile("page/icon.svg")
	templates, templatesErr := htmltemplate.Parse(files, "page/*.html", nil)
	errs := []error{scriptErr, reloadErr, styleErr, iconErr, templatesErr}
	p := &Pages{
		cfg: cfg, templates: templates, texts: map[Lang]texts{}, style: htmltemplate.CSS(style),
		policy: contentPolicy(page.StyleHash(style), cfg.FrameAncestors),
	}
	for _, lang := range langs {
		var t texts
		text, err := files.ReadFile("text/" + string(lang) + ".json")
		errs = append(errs, err, json.Unmarshal(text, &t))
		p.texts[lang] = t
	}
	const assetPath, javascript = "/assets/", "text/javascript; charset=utf-8"
	p.script = assetPath + p.assets.Add("sale.js", javascript, script)
	p.reload = assetPath + p.assets.Add("reload.js", javascript, reload)
	p.icon = assetPath + p.assets.Add("icon.svg", "image/svg+xml", icon)
	return p, errors.Join(errs...)
}

// Asset returns a file by the last part of its URL, /assets/{name}.
func (p *Pages) Asset(name string) (page.Asset, bool) { return p.assets.Find(name) }

// contentPolicy returns the Content-Security-Policy of all pages, to which headers adds the host of a sale's picture.
// It allows the page's own script, and no inline script and no other host. Only the ancestors may show the page in a
// frame. The style is inlined, so that the first paint needs one round trip, and allowed by its hash.
func contentPolicy(style string, ancestors []string) string {
	frames := "'none'"
	if len(ancestors) > 0 {
		frames = strings.Join(ancestors, " ")
	}
	return "default-src 'none'; script-src 'self'; style-src " + style +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors " + frames + "; img-src 'self'"
}

// headers returns the headers of every page.
func (p *Pages) headers(v *view) []page.Header {
	policy := p.policy
	if v.Sale != nil && v.Sale.Picture != "" {
		policy += " " + v.Sale.PictureOrigin()
	}
	headers := []page.Header{
		{Name: "Content-Security-Policy", Value: policy},
		{Name: "X-Content-Type-Options", Value: "nosniff"},
		{Name: "Referrer-Policy", Value: "no-referrer"},
		{Name: "Cross-Origin-Opener-Policy", Value: "same-origin"},
		{Name: "Permissions-Policy", Value: "camera=(), geolocation=(), microphone=()"},
		{Name: "Content-Language", Value: string(v.Lang)},
		{Name: "Vary", Value: "Accept-Language"},
	}
	if len(p.cfg.FrameAncestors) == 0 { // this header cannot name other sites
		headers = append(headers, page.Header{Name: "X-Frame-Options", Value: "DENY"})
	}
	return headers
}

// view is the data of the templates.
type view struct {
	Lang, Other      Lang
	Text             texts
	TextJSON         string
	Title            string
	Description      string // for search engines and previews; empty: none
	Style            htmltemplate.CSS
	Script, Icon     string // URLs; Script empty: none
	SignIn, Checkout string
	Now              int64 // Unix milliseconds
	Sale             *saleView
	Sales            []saleView
	More             string // text about sales that are not listed
	NotReady         bool
}

type saleView struct {
	Sale
	Price, Left, Limit  string // formatted
	Opens, Closes       int64  // Unix milliseconds; Closes 0: no end
	OpensISO, OpensText string
	OpensAtText         string // for browsers without JavaScript
	StateText           string
	About               htmltemplate.HTML // the description
}

// Sale renders the page of one sale. It returns the same page for a second while nothing on it changes.
func (p *Pages) Sale(lang Lang, s Sale) (page.Page, error) {
	return p.recent.get(p.cfg.Now(), pageKey{lang, s}, func() (page.Page, error) {
		v := p.view(lang)
		shown := v.saleView(s)
		v.Sale, v.Title, v.Script = &shown, withoutBidi(s.Title), p.script
		var err error
		if shown.About, v.Description, err = renderMarkdown(s.Description); err != nil {
			return page.Page{}, fmt.Errorf("buyer: description of sale %s: %w", s.ID, err)
		}
		if v.Description == "" {
			v.Description = fill(v.Text["about.sale"], "{title}", v.Title, "{price}", shown.Price)
		}
		return p.render("sale.html", v)
	})
}

// maxListed bounds the page of all sales.
const maxListed = 200

// Sales renders a list of at most 200 sales. Open and scheduled sales come first.
func (p *Pages) Sales(lang Lang, list []Sale) (page.Page, error) {
	v := p.view(lang)
	v.Title, v.Description = v.Text["sales"], v.Text["about.sales"]
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
	if len(list) > maxListed {
		v.More = fill(v.Text["sales.more"], "{n}", strconv.Itoa(len(list)-maxListed))
		list = list[:maxListed]
	}
	for _, s := range list {
		v.Sales = append(v.Sales, v.saleView(s))
	}
	return p.render("sales.html", v)
}

func rank(s sale.State) int {
	order := []sale.State{sale.StateOpen, sale.StateScheduled, sale.StatePaused, sale.StateSoldOut, sale.StateClosed}
	return slices.Index(order, s)
}

// Missing renders the page for a sale that does not exist.
func (p *Pages) Missing(lang Lang) (page.Page, error) {
	v := p.view(lang)
	v.Title = v.Text["missing"]
	return p.render("notice.html", v)
}

// NotReady renders the page for a sale whose state is unknown, because Redis does not answer. It reloads automatically.
func (p *Pages) NotReady(lang Lang) (page.Page, error) {
	v := p.view(lang)
	v.Title, v.NotReady, v.Script = v.Text["notready"], true, p.reload
	return p.render("notice.html", v)
}

func (p *Pages) view(lang Lang) *view {
	text := p.texts[lang]
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // a map of strings
	}
	return &view{
		Lang: lang, Other: lang.other(), Text: text, TextJSON: string(encoded), Style: p.style,
		SignIn: p.cfg.SignIn, Checkout: p.cfg.Checkout,
		Now: p.cfg.Now().UnixMilli(), Icon: p.icon,
	}
}

func (v *view) saleView(s Sale) saleView {
	left, stock := grouped(strconv.FormatInt(s.Left, 10)), grouped(strconv.FormatInt(s.Stock, 10))
	shown := saleView{
		Sale:      s,
		Price:     formatPrice(v.Lang, s.Price),
		Left:      fill(v.Text["left"], "{n}", left, "{stock}", stock),
		Limit:     fill(v.Text["limit"], "{n}", strconv.Itoa(s.PerBuyer)),
		Opens:     s.OpensAt.UnixMilli(),
		OpensISO:  s.OpensAt.UTC().Format(time.RFC3339),
		OpensText: s.OpensAt.UTC().Format("2006-01-02 15:04 UTC"),
		StateText: v.Text["state."+string(s.State)],
	}
	shown.OpensAtText = fill(v.Text["opens.at"], "{time}", shown.OpensText)
	if !s.ClosesAt.IsZero() {
		shown.Closes = s.ClosesAt.UnixMilli()
	}
	return shown
}

func (p *Pages) render(name string, v *view) (page.Page, error) {
	body, err := p.templates.Execute(name, v)
	if err != nil {
		return page.Page{}, fmt.Errorf("buyer: %w", err)
	}
	return page.Page{Body: body, Gzip: page.Compress(body), Headers: p.headers(v)}, nil
}

// checkURL rejects the value of a flag unless it is empty or a URL with the first of the placeholders. It rejects URLs
// that a browser would execute, URLs without a host, and braces that are not one of the placeholders.
func checkURL(flag, raw, example string, placeholders ...string) error {
	plain := raw
	for _, placeholder := range placeholders {
		plain = strings.ReplaceAll(plain, placeholder, "x")
	}
	u, err := url.Parse(plain)
	valid := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsAny(plain, "{}")
	if raw != "" && (!valid || !strings.Contains(raw, placeholders[0])) {
		return fmt.Errorf("%s %q: use an http or https URL with %s, such as %s", flag, raw, placeholders[0], example)
	}
	return nil
}

var ancestor = regexp.MustCompile(`^https?://(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?$`)

// checkAncestors rejects values that are not origins, because they become part of a header.
func checkAncestors(origins []string) error {
	for _, origin := range origins {
		if !ancestor.MatchString(origin) {
			return fmt.Errorf("--frame-ancestors %q: use an origin such as https://shop.example or https://*.shop.example",
				origin)
		}
	}
	return nil
}

// withoutBidi removes the characters that change the direction of text. The window's title needs it, because no element
// can isolate it.
func withoutBidi(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, title)
}

// fill replaces the placeholders of a text. Pairs are names and values; placeholders in values stay.
func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// texts are the texts of one language, by key.
type texts map[string]string
