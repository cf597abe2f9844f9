// Package pages renders the admin console. A page is a frame with one script, which reads all data from the admin
// API. The package does not depend on an HTTP library and reads no store.
package pages

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sluice/backend/web/page"
	"sluice/internal/htmltemplate"
	"sluice/internal/money"
)

//go:embed page
var files embed.FS

// policy allows the console's own files only: no inline scripts or styles, no frames, no other hosts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'"

// Pages renders pages. It is safe for concurrent use.
type Pages struct {
	templates           *htmltemplate.Template
	assets              page.Assets
	script, style, icon string // names in URLs
	decimals            string
}

// New returns Pages.
func New() (*Pages, error) {
	names, err := fs.Glob(files, "page/*.js")
	const last = "page/console.js" // calls what the other scripts define
	names = append(slices.DeleteFunc(names, func(name string) bool { return name == last }), last)
	script, scriptErr := page.Script(files, names...)
	style, styleErr := files.ReadFile("page/console.css")
	icon, iconErr := files.ReadFile("page/icon.svg")
	decimals, decimalsErr := json.Marshal(money.Unusual())
	templates, templatesErr := htmltemplate.Parse(files, "page/*.html", nil)
	p := &Pages{templates: templates, decimals: string(decimals)}
	p.script = p.assets.Add("console.js", "text/javascript; charset=utf-8", script)
	p.style = p.assets.Add("console.css", "text/css; charset=utf-8", style)
	p.icon = p.assets.Add("icon.svg", "image/svg+xml", icon)
	return p, errors.Join(err, scriptErr, styleErr, iconErr, decimalsErr, templatesErr)
}

// Asset returns a file by the last part of its URL.
func (p *Pages) Asset(name string) (page.Asset, bool) { return p.assets.Find(name) }

// frame is the data of the templates.
type frame struct {
	Script, Style, Icon string
	Problem, To         string // of the sign-in page
	Actor               string // the signed-in admin; on the sign-in page, the name that was entered
	Left                int64  // milliseconds until the session ends: the clock of the browser may be wrong
	Decimals            string // of currencies without two decimals, as a JSON object
	Views               []link
	Missing             bool // the console has no such page
}

// link is a page of the console below /admin/.
type link struct {
	Path, Name string
	subPages   bool // it has sub-pages, by name
}

var views = []link{
	{Path: "", Name: "Overview"},
	{Path: "sales", Name: "Sales", subPages: true},
	{Path: "orders", Name: "Orders", subPages: true},
	{Path: "refunds", Name: "Refunds"},
	{Path: "dead", Name: "Dead letters"},
	{Path: "rehearsals", Name: "Rehearsals"},
	{Path: "groups", Name: "Events", subPages: true},
	{Path: "webhooks", Name: "Webhooks", subPages: true},
	{Path: "edge", Name: "Edge", subPages: true},
	{Path: "log", Name: "Log"},
}

// problems are the messages of the sign-in page.
var problems = map[string]string{
	"wrong":    "Wrong token.",
	"name":     "Enter a name of 1 to 64 bytes without control characters.",
	"reserved": "This name is reserved for automatic actions. Enter another one.",
	"limited":  "Too many failed attempts. Please wait a moment.",
}

// SignIn renders the form. problem is "", wrong, name, reserved or limited; actor is the name that was entered; to is
// the page to open next.
func (p *Pages) SignIn(problem, actor, to string) (page.Page, error) {
	f := p.frame()
	f.Problem, f.Actor, f.To = problems[problem], actor, to
	return p.render("signin.html", f)
}

// Has reports whether the console has a page. name is "" or the name of a sub-page.
func (p *Pages) Has(path, name string) bool {
	return slices.ContainsFunc(views, func(v link) bool { return v.Path == path && (name == "" || v.subPages) })
}

// View renders any page of the console. Its script selects the view by the URL, unless the console has no such page.
func (p *Pages) View(actor string, until time.Time, found bool) (page.Page, error) {
	f := p.frame()
	f.Actor, f.Left, f.Decimals, f.Views, f.Missing = actor, time.Until(until).Milliseconds(), p.decimals, views, !found
	return p.render("console.html", f)
}

func (p *Pages) frame() *frame {
	const base = "/admin/assets/"
	return &frame{Script: base + p.script, Style: base + p.style, Icon: base + p.icon}
}

func (p *Pages) render(name string, f *frame) (page.Page, error) {
	body, err := p.templates.Execute(name, f)
	if err != nil {
		return page.Page{}, fmt.Errorf("pages: %w", err)
	}
	return page.Page{Body: body, Headers: []page.Header{
		{Name: "Content-Security-Policy", Value: policy},
		{Name: "X-Content-Type-Options", Value: "nosniff"},
		{Name: "X-Frame-Options", Value: "DENY"},
		// same-origin hides the console's URL from other sites. no-referrer would make the Origin of the sign-in form null.
		{Name: "Referrer-Policy", Value: "same-origin"},
		{Name: "Cross-Origin-Opener-Policy", Value: "same-origin"},
		{Name: "Cross-Origin-Resource-Policy", Value: "same-origin"},
		{Name: "Permissions-Policy", Value: "camera=(), geolocation=(), microphone=()"},
	}}, nil
}
