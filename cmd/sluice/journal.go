package main

import (
	"log/slog"

	"github.com/spf13/pflag"

	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
)

const (
	envJournal     = "SLUICE_JOURNAL"
	envJournalSync = "SLUICE_JOURNAL_SYNC"
)

// journalConfig configures the journal of accepted orders.
type journalConfig struct{ dir, sync string }

func (p *program) journalFlags(f *pflag.FlagSet, cfg *journalConfig) {
	p.str(
		f,
		&cfg.sync,
		"journal-sync",
		envJournalSync,
		string(journal.Second),
		"when the journal is forced to disk: always (before each answer) or second",
	)
}

func (m *problems) checkJournal(cfg journalConfig) {
	if s := journal.Sync(cfg.sync); s != "" && s != journal.Always && s != journal.Second {
		m.add("--journal-sync %q: want always or second", cfg.sync)
	}
}

// openJournal opens the journal and its writer; nil without a directory.
func (s *stores) openJournal(cfg journalConfig, log *slog.Logger) (*rebuild.JournalWriter, func(), error) {
	if cfg.dir == "" {
		log.Info(
			"no journal: should Redis lose data, accepted orders that are not rows yet are lost with it (--journal DIR keeps " +
				"them)",
		)
		return nil, func() {}, nil
	}
	j, err := journal.Open(cfg.dir, journal.Config{Sync: journal.Sync(cfg.sync), Log: log})
	if err != nil {
		return nil, nil, usage("--journal: %w", err)
	}
	writer := rebuild.NewJournalWriter(rebuild.JournalWriterConfig{
		Journal: j, Guard: s.guard, Restorer: s.restorer(), Store: s.sql, Log: log,
	})
	return writer, func() { _ = j.Close() }, nil
}
