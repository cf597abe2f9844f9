package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"sluice/test/testenv"
)

const haproxy = `global
    maxconn 4000
defaults
    timeout connect 1s
    timeout client 65s
    timeout server 65s
    retries 2
    option redispatch 1
    option httpchk GET /healthz
    default-server check inter 1s fall 2 rise 2 on-marked-down shutdown-sessions
{{range .}}
listen {{.Name}}
    bind {{.Bind}}
    mode {{if .TCP}}tcp{{else}}http
    option forwardfor{{end}}
{{- $tcp := .TCP}}
{{- range .Edges}}
    server {{.}} {{.}}{{if $tcp}} send-proxy-v2 check-send-proxy{{end}}
{{- end}}
{{end}}`

func (f *farm) startBalancer() {
	h := f.host("balancer")
	type listener struct {
		Name, Bind string
		TCP        bool
		Edges      []string
	}
	var all []listener
	add := func(port int, tcp bool, edges ...string) {
		l := listener{Name: fmt.Sprint("to-", port), Bind: h.at(port), TCP: tcp}
		for _, e := range edges {
			l.Edges = append(l.Edges, f.host(e).at(map[bool]int{true: edgeTCP, false: edgeHTTP}[tcp]))
		}
		all = append(all, l)
	}
	add(overTCP, true, "edge-1", "edge-2")
	add(overHTTP, false, "edge-1", "edge-2")
	add(nginxTCP, true, "edge-1")
	add(gatewayTCP, true, "edge-2")
	add(nginxHTTP, false, "edge-1")
	add(gatewayHTTP, false, "edge-2")
	config := filepath.Join(h.dir, "haproxy.cfg")
	out, err := os.Create(config)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := template.Must(template.New("haproxy").Parse(haproxy)).Execute(out, all); err != nil {
		f.t.Fatal(err)
	}
	out.Close()
	h.launch(silent{f.t}, nil, "haproxy", "-db", "-f", config)
	for _, l := range all {
		testenv.Eventually(f.t, 60*time.Second, l.Bind+" answers", func() bool {
			return call(f.t.Context(), "GET", "http://"+l.Bind+"/healthz", "", "", "").status == 200
		})
	}
}
