package htmltemplate_test

import (
	"bytes"
	"html/template"
	"strings"
	"testing"
	"testing/fstest"

	"sluice/internal/htmltemplate"
)

type part struct{ Name, Note string }

type embedded struct{ Inner string }

type data struct {
	embedded
	Text, Link, Empty string
	N                 int
	Nothing           *part
	One               *part
	Parts, None       []part
	Words             map[string]string
}

func parseOne(text string) (*htmltemplate.Template, error) {
	return htmltemplate.Parse(fstest.MapFS{"x.html": {Data: []byte(text)}}, "*.html", nil)
}

func render(text string, v any) (string, error) {
	t, err := parseOne(text)
	if err != nil {
		return "", err
	}
	out, err := t.Execute("x.html", v)
	return string(out), err
}

var hostile = []string{
	"plain", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "' onclick='x", "&lt;&amp;", "a+b", "</style>",
	"鞋 ü", "", "{{.Text}}", "\t\n", "--><b>",
}

// The result equals that of html/template, except that html/template also escapes a plus sign.
func TestResultEqualsThatOfHTMLTemplate(t *testing.T) {
	for _, text := range []string{
		`<p title="{{.Text}}">{{.Text}}</p>`,
		`<p onclick="f()" style="color: red" title="{{.Text}}">{{.Text}}</p>`,
		`<p>{{.Inner}} {{.N}} {{.One.Name}} {{$.One.Note}}</p>`,
		`{{with .One}}{{.Name}}{{else}}none{{end}}{{with .Nothing}}x{{else}}none{{end}}`,
		`{{if .Empty}}a{{else if .None}}b{{else}}c{{end}}{{if not .Parts}}d{{end}}{{if eq .Text "plain"}}e{{end}}`,
		`{{range $i, $p := .Parts}}{{if $i}}, {{end}}<b data-n="{{$i}}">{{$p.Name}}{{.Note}}</b>{{end}}`,
		`{{range .None}}x{{else}}none{{end}}{{range .Parts -}} {{.Name}} {{- end}}`,
		`{{define "row"}}<i>{{.Name}}</i>{{end}}{{range .Parts}}{{template "row" .}}{{end}}`,
		`{{$t := .Text}}{{with .One}}{{$t}}{{$t := "inner"}}{{$t}}{{end}}{{$t}}`,
		`{{.Words.a}}{{index .Words "b.c"}}{{.Words.none}}`,
		`<a href="/s/x">{{printf "%03d" .N}}{{print .Text .N}}{{.N | printf "%d"}}</a>`,
		`<input value="{{.Text}}"{{if .Empty}} disabled{{end}} autofocus>`,
	} {
		for _, value := range hostile {
			v := data{
				embedded: embedded{value}, Text: value, N: 7, One: &part{value, "note"},
				Parts: []part{{value, "1"}, {"b", value}}, Words: map[string]string{"a": value, "b.c": "d"},
			}
			got, err := render(text, v)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var want bytes.Buffer
			if err := template.Must(template.New("x").Parse(text)).Execute(&want, v); err != nil {
				t.Fatal(err)
			}
			if strings.ReplaceAll(want.String(), "&#43;", "+") != got {
				t.Errorf("%s with %q:\n%s\nwant\n%s", text, value, got, &want)
			}
		}
	}
}

func TestTrustedValuesAreNotEscaped(t *testing.T) {
	got, err := render(`<style>{{.Style}}</style>{{.Body}}`, struct {
		Style htmltemplate.CSS
		Body  htmltemplate.HTML
	}{"a > b {}", "<b>x</b>"})
	if err != nil || got != "<style>a > b {}</style><b>x</b>" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestURLsThatABrowserExecutesAreRejected(t *testing.T) {
	for _, url := range []string{"javascript:x", "JaVaScRiPt:x", "java\nscript:x", " javascript:x", "data:text/html,x", "\x01:x"} {
		for _, text := range []string{
			`<a href="{{.}}">`, `<img src="{{.}}">`, `<form action="{{.}}">`, "<a\nhref=\"{{.}}\">",
			`<button formaction="{{.}}">`, `<a href="{{if .}}{{.}}{{end}}">`,
		} {
			if got, err := render(text, url); err == nil {
				t.Errorf("%s with %q: %s", text, url, got)
			}
		}
	}
	for _, url := range []string{"", "/a?b=c:d", "#a", "https://x/y", "HTTP://x", "a/b:c", "?x"} {
		if _, err := render(`<a href="{{.}}">`, url); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// Values in these positions need another escaping.
func TestActionsInOtherPlacesAreRejected(t *testing.T) {
	for _, text := range []string{
		`<p {{.}}>`, `<p title={{.}}>`, `<{{.}}>`, `<script>{{.}}</script>`, `<script type="x">{{.}}</script>`, `<!-- {{.}} -->`,
		`<style>{{.}}</style>`, `<p title='{{.}}'>`, `{{if .}}<p title="{{end}}">`, `<p title="{{if .}}">{{end}}`, `<p`,
		`<SCRIPT>{{.}}</SCRIPT>`, `<style media="print">{{.}}</style>`, `<p onclick="{{.}}">`,
		`<p class="a"OnClick = "f('{{.}}')">`, `<iframe srcdoc="{{.}}">`,
		`{{range .}}<b {{end}}>`, `{{define "a"}}<p {{end}}`, `<b title="{{template "x.html"}}">`, `{{.`, `{{unknown .}}`,
	} {
		if _, err := parseOne(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestInvalidTemplatesReturnErrors(t *testing.T) {
	for _, text := range []string{
		`{{.None}}`, `{{.Name.First}}`, `{{template "none"}}`, `{{range .Name}}{{end}}`, `{{index .Name "x"}}`, `{{1.5}}`,
		`{{printf}}`, `{{eq .Name}}`, `{{break}}`, `{{.Name "x"}}`,
	} {
		if got, err := render(text, part{Name: "x"}); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}
