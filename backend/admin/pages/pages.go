// Package deskpage makes the pages of the operators' desk: what the sale does right now, and everything that
// operators may do about it. A page is a frame with one script, which asks the operator's API for everything it
// shows. The package knows no HTTP library and asks nobody anything itself.
package pages

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"time"

	"sluice/backend/web/buyer"
)

//go:embed page
var files embed.FS

// scripts become one file, in this order.
var scripts = []string{
	"page/api.js", "page/element.js", "page/format.js", "page/ask.js", "page/chart.js", "page/list.js", "page/live.js", "page/overview.js", "page/sales.js", "page/sale.js", "page/newsale.js",
	"page/dead.js", "page/bulk.js", "page/groups.js", "page/webhooks.js", "page/edge.js", "page/log.js", "page/desk.js",
}

// policy lets a page run our script and nothing else: no inline script or style, nobody's frame, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Pages makes pages. It is safe for concurrent use.
type Pages struct {
	templates           *template.Template
	assets              buyer.Assets
	script, style, icon string // in a URL
}

// New reads what is embedded.
func New() (*Pages, error) {
	p := &Pages{}
	script, err := buyer.Script(files, scripts...)
	if err != nil {
		return nil, err
	}
	for _, a := range []struct {
		url              *string
		name, mime, file string
	}{{&p.style, "desk.css", "text/css; charset=utf-8", "page/desk.css"}, {&p.icon, "icon.svg", "image/svg+xml", "page/icon.svg"}} {
		body, err := files.ReadFile(a.file)
		if err != nil {
			return nil, err
		}
		if *a.url, err = p.assets.Add(a.name, a.mime, body); err != nil {
			return nil, err
		}
	}
	if p.script, err = p.assets.Add("desk.js", "text/javascript; charset=utf-8", script); err != nil {
		return nil, err
	}
	p.templates, err = template.New("").ParseFS(files, "page/*.html")
	return p, err
}

// Asset finds a file by the last part of its URL.
func (p *Pages) Asset(name string) (buyer.Asset, bool) { return p.assets.Find(name) }

// frame is what the templates see.
type frame struct {
	Script, Style, Icon string
	Problem, To         string // of the sign-in page
	Actor               string // of the sign-in page: who tries to be
	Until               int64  // Unix milliseconds
	Views               []link
}

type link struct{ Path, Name string }

var views = []link{{"", "Overview"}, {"sales", "Sales"}, {"dead", "Dead letters"}, {"groups", "Events"}, {"webhooks", "Webhooks"}, {"edge", "Edge"}, {"log", "Log"}}

// problems are what the sign-in page says.
var problems = map[string]string{
	"wrong":   "That is not the operator's token.",
	"name":    "A name has 1 to 64 bytes of text, without control characters.",
	"limited": "Too many failed tries from here. Wait a little, then try again.",
}

// SignIn is the page with the form. problem is "", wrong, name or limited; actor is the name that was typed before;
// to is the page to go to then.
func (p *Pages) SignIn(problem, actor, to string) (buyer.Page, error) {
	f := p.frame()
	f.Problem, f.Actor, f.To = problems[problem], actor, to
	return p.render("signin.html", f)
}

// View is any page of the desk: its script sees from the address which one.
func (p *Pages) View(actor string, until time.Time) (buyer.Page, error) {
	f := p.frame()
	f.Actor, f.Until, f.Views = actor, until.UnixMilli(), views
	return p.render("desk.html", f)
}

func (p *Pages) frame() *frame {
	const at = "/admin/assets/"
	return &frame{Script: at + p.script, Style: at + p.style, Icon: at + p.icon}
}

func (p *Pages) render(name string, f *frame) (buyer.Page, error) {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, f); err != nil {
		return buyer.Page{}, fmt.Errorf("deskpage: %s: %w", name, err)
	}
	return buyer.Page{Body: buf.Bytes(), Lang: buyer.English, Headers: []buyer.Header{
		{Name: "Content-Security-Policy", Value: policy},
		{Name: "X-Content-Type-Options", Value: "nosniff"},
		{Name: "X-Frame-Options", Value: "DENY"},
		{Name: "Referrer-Policy", Value: "same-origin"}, // no other site hears where the desk is; the sign-in form's Origin would be null without
		{Name: "Cross-Origin-Opener-Policy", Value: "same-origin"},
		{Name: "Cross-Origin-Resource-Policy", Value: "same-origin"},
		{Name: "Permissions-Policy", Value: "camera=(), geolocation=(), microphone=()"},
	}}, nil
}
