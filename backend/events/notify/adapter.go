package notify

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"sluice/backend/events"
)

// MaxAdapters is how many adapters one process has at most.
const MaxAdapters = 16

// ParseAdapters makes adapters from a list separated by commas:
//
//	log                                              each message in this process's log, at debug level; log?level=info to see them
//	smtp://user:password@host:587?from=shop@example.com&to={buyer}
//	ntfy://host/topic
//
// {buyer} stands for the buyer; ?lang=zh writes Chinese, ?name=N tells two of a kind apart. The error is one line without passwords.
func ParseAdapters(list string, log *slog.Logger) ([]Adapter, error) {
	var all []Adapter
	names := map[string]bool{Web: true}
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a, err := parseAdapter(text, log)
		if err != nil {
			return nil, err
		}
		if names[a.Name()] {
			return nil, fmt.Errorf("two adapters are named %q, or it is a reserved name: give one another with ?name=", a.Name())
		}
		names[a.Name()] = true
		all = append(all, a)
	}
	if len(all) > MaxAdapters {
		return nil, fmt.Errorf("%d adapters are more than %d", len(all), MaxAdapters)
	}
	return all, nil
}

// kinds are the adapters by the scheme of their URLs.
var kinds = map[string]func(common, *settings, *url.URL, *slog.Logger) (Adapter, error){
	"log": newLog, "smtp": newSMTP, "smtps": newSMTP, "ntfy": newNtfy, "ntfy+http": newNtfy,
}

func parseAdapter(text string, log *slog.Logger) (Adapter, error) {
	kind, _, _ := strings.Cut(text, ":")
	kind, _, _ = strings.Cut(kind, "?")
	make, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("there is no adapter %q: want log, smtp, smtps, ntfy or ntfy+http", plain(shorten(kind)))
	}
	u, err := url.Parse(escapeBuyer(text))
	if err != nil { // the parser's words may quote a password
		return nil, fmt.Errorf("the adapter that begins with %q is no URL; special characters are written %%XX", kind)
	}
	s := &settings{query: u.Query()}
	common := common{name: s.take("name", strings.TrimSuffix(strings.TrimSuffix(kind, "s"), "+http"))}
	if err := events.ValidateGroup(common.name); err != nil {
		return nil, fmt.Errorf("%s: the name must be small letters, digits and -, and begin with a letter", kind)
	}
	if common.lang, ok = ParseLang(s.take("lang", "")); !ok {
		return nil, fmt.Errorf("%s: lang must be en or zh", kind)
	}
	a, err := make(common, s, u, log)
	if err == nil {
		err = s.unknown()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return a, nil
}

func shorten(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}

// Braces are no part of URLs, but {buyer} is easier to read than what they are written as.
func escapeBuyer(s string) string { return strings.ReplaceAll(s, "{buyer}", "%7Bbuyer%7D") }

const buyerMark = "{buyer}"

// common is what all adapters have.
type common struct {
	name string
	lang Lang
}

// Name is Adapter.
func (c common) Name() string { return c.name }

// settings are the parameters of an adapter's URL.
type settings struct {
	query url.Values
	twice string
}

// take returns a parameter once.
func (s *settings) take(name, def string) string {
	values := s.query[name]
	delete(s.query, name)
	if len(values) > 1 {
		s.twice = name
	}
	if len(values) == 0 || values[0] == "" {
		return def
	}
	return values[0]
}

// unknown is an error when there is a parameter that nobody took, or one that was there twice.
func (s *settings) unknown() error {
	if s.twice != "" {
		return fmt.Errorf("%s is there twice", s.twice)
	}
	for name := range s.query {
		return fmt.Errorf("the parameter %q is not known", plain(shorten(name)))
	}
	return nil
}

var errNoHost = errors.New("names no host")
