package notify

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
)

// logAdapter writes messages in the log of this process. It cannot fail, so nothing is queued for it.
type logAdapter struct {
	common
	log   *slog.Logger
	level slog.Level
}

func newLog(c common, s *settings, u *url.URL, log *slog.Logger) (Adapter, error) {
	a := &logAdapter{common: c, log: log, level: slog.LevelDebug}
	if u.Host != "" || u.Path != "log" {
		return nil, errors.New("takes nothing but parameters: log, or log?level=info")
	}
	switch s.take("level", "debug") {
	case "debug":
	case "info":
		a.level = slog.LevelInfo
	default:
		return nil, errors.New("level must be debug or info")
	}
	return a, nil
}

// Send is Adapter.
func (a *logAdapter) Send(ctx context.Context, m Message) error {
	if a.log.Enabled(ctx, a.level) {
		t := m.Text(a.lang)
		a.log.Log(ctx, a.level, "push", "event", m.ID, "buyer", m.Buyer, "title", t.Title, "text", t.Body)
	}
	return nil
}

// direct marks adapters that cannot fail and are called at once.
func (*logAdapter) direct() {}
