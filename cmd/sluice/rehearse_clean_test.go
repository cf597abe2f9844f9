package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each copy has the status with which the server answers its removal.
func TestCleanRemovesTheOtherRehearsalsAfterAnError(t *testing.T) {
	const notFound, conflict = http.StatusNotFound, http.StatusConflict
	for _, c := range []struct {
		args     string
		statuses []int
		code     int
		out, err string
	}{
		{
			"", []int{notFound, 200, conflict, conflict, 200}, 1,
			"rehearsal-1 and its 7 orders are removed\nrehearsal-4 and its 7 orders are removed\n",
			"sluice: rehearsal-2: Not yet.; rehearsal-3: Not yet.\n",
		},
		{"", []int{notFound}, 0, "there is no rehearsal\n", ""},
		{"", []int{conflict}, 1, "", "sluice: rehearsal-0: Not yet.\n"},
		{"--json", []int{notFound, conflict}, 1, "[]\n", "sluice: rehearsal-1: Not yet.\n"},
		{
			"rehearsal-0", []int{notFound}, 1, "",
			"sluice: there is no rehearsal \"rehearsal-0\" (see the admin console)\n",
		},
	} {
		mux := http.NewServeMux()
		var list []string
		for i, status := range c.statuses {
			id := fmt.Sprintf("rehearsal-%d", i)
			list = append(list, `{"id":"`+id+`"}`)
			mux.HandleFunc("POST /admin/v1/rehearsals/"+id+"/remove", func(w http.ResponseWriter, _ *http.Request) {
				if status == 200 {
					fmt.Fprintf(w, `{"id":%q,"orders":7}`, id)
					return
				}
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"status":%d,"detail":"Not yet.","code":"conflict"}`, status)
			})
		}
		mux.HandleFunc("GET /admin/v1/rehearsals", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"rehearsals":[`+strings.Join(list, ",")+`]}`)
		})
		mux.HandleFunc("GET /admin/v1/sales", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"sales":[]}`) })
		s := httptest.NewServer(mux)
		env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir()}
		code, out, stderr := sluice(t, env, append([]string{"rehearse", "clean"}, strings.Fields(c.args)...)...)
		if code != c.code || out != c.out || stderr != c.err {
			t.Errorf("clean %s of %v: exit %d, %q and %q; want %d, %q and %q",
				c.args, c.statuses, code, out, stderr, c.code, c.out, c.err)
		}
		s.Close()
	}
}

// The id of the copy is the name of the files of the report.
func TestRehearseRejectsAnIDThatIsAPath(t *testing.T) {
	for _, id := range []string{"rehearsal-/../../x", "../rehearsal-x", "shoe", ""} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/sales", "/.sluice/signals":
			case "/admin/v1/rehearsals":
				fmt.Fprintf(w, `{"id":%q,"stock":1}`, id)
			default:
				t.Errorf("id %q: the rehearsal continues: %s %s", id, r.Method, r.URL.Path)
				fmt.Fprint(w, `{}`)
			}
		}))
		env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir(),
			envSecret: strings.Repeat("s", 32)}
		code, _, stderr := sluice(t, env, "rehearse", "shoe", "--buyers", "1", "--span", "100ms", "--max-drain", "1ms",
			"--target", s.URL, "--out", t.TempDir())
		want := fmt.Sprintf("sluice: the server returned %q as the id of the rehearsal\n", id)
		if code != exitFail || stderr != want {
			t.Errorf("id %q: exit %d, %q, want %q", id, code, stderr, want)
		}
		s.Close()
	}
}
