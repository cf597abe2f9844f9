package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"sluice/gateway/policy"
	"sluice/gateway/replay"
)

func (p *program) replayCommand() *cobra.Command {
	var cfg replay.Config
	var file, against string
	c := &cobra.Command{
		Use:   "replay ACCESS_LOG...",
		Short: "Replay recorded traffic through a policy: which requests would be rejected",
		Long: `Replay the requests of access logs through a policy, with the gateway's own limiter and the log's
times as its clock, and report which would be rejected: by rule, by key, per second. With --against,
also report the changes from another policy. The command sends no requests.

It reads the JSON logs of both edges and nginx's combined format, as text or gzipped; "-" is
standard input. Several logs are merged by time, so that rotated ones may be named in any order. The
combined format has no buyers, so rules with key = "token" do not apply to it; with a JSON log they
see the requests with a verified token. Unreadable lines are counted and skipped.`,
		Example: `  sluice policy replay /var/log/nginx/access.log --policy new.lua --against lua/policy.lua
  zcat access.log.*.gz | sluice policy replay - --policy new.lua --json | jq .policy.rules
  sluice policy replay .sluice-edge/logs/access.log        # with lua/policy.lua`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkDefaultPolicy(file); err != nil {
				return err
			}
			cfg.NewName, cfg.OldName = file, against
			if cfg.New, err = policy.Read(file); err != nil {
				return usageError{Err: err}
			}
			if against != "" {
				if cfg.Old, err = policy.Read(against); err != nil {
					return usageError{Err: err}
				}
			}
			logs, err := openLogs(cmd.Context(), args)
			defer logs.close()
			if err != nil {
				return err
			}
			cfg.Inputs = logs.inputs
			done := p.waiting(logs.progress)
			report, err := replay.Run(cmd.Context(), cfg)
			done()
			switch {
			case errors.Is(err, replay.ErrNothing):
				return usageError{Err: err}
			case errors.Is(err, context.Canceled):
				return errInterrupted
			case err != nil:
				return err
			}
			return p.show(report, report.WriteText)
		},
	}
	f := p.flags(c)
	f.str(&file, "policy", envPolicy, defaultPolicy, "policy to evaluate")
	f.StringVar(&against, "against", "", "policy to compare it with, for example the current one")
	f.json(&p.json)
	f.number(&cfg.Top, "top", "", 10, 1, 0, "number of keys to print, those with the most rejections first")
	f.duration(&cfg.Window, "window", "", replay.DefaultWindow, 1, 0,
		"span of reordering: log lines are written when requests end, and evaluated by their start")
	f.number(&cfg.Buckets, "buckets", "", replay.DefaultBuckets, 1, 0, "maximum number of live buckets")
	return c
}

type accessLogs struct {
	files  []*os.File
	inputs []replay.Input // they count what is read
	size   int64          // of all of them; -1 when it is not known
	read   byteCount
}

func openLogs(ctx context.Context, names []string) (*accessLogs, error) {
	logs := &accessLogs{}
	if first := slices.Index(names, "-"); first >= 0 && slices.Contains(names[first+1:], "-") {
		return logs, usage("- is standard input and can be read once: name it once")
	}
	for _, name := range names {
		f := os.Stdin
		if name == "-" {
			name = "stdin"
		} else {
			var err error
			f, err = readInput(ctx, func() (*os.File, error) { return os.Open(name) })
			if err != nil {
				return logs, err
			}
		}
		logs.files = append(logs.files, f)
		logs.inputs = append(logs.inputs, replay.Input{Name: name, Reader: io.TeeReader(f, &logs.read)})
		info, err := f.Stat()
		switch {
		case err != nil:
			return logs, err
		case info.IsDir():
			return logs, usage("%s is a directory: name the logs in it", name)
		case !info.Mode().IsRegular() || logs.size < 0:
			logs.size = -1
		default:
			logs.size += info.Size()
		}
	}
	return logs, nil
}

func (l *accessLogs) close() {
	for _, f := range l.files {
		_ = f.Close()
	}
}

// byteCount counts the bytes that are written to it. It is safe for concurrent use.
type byteCount struct{ atomic.Int64 }

func (n *byteCount) Write(p []byte) (int, error) {
	n.Add(int64(len(p)))
	return len(p), nil
}

func (l *accessLogs) progress() string {
	if l.size > 0 {
		return fmt.Sprintf("replaying: %d%% of %d MB", 100*l.read.Load()/l.size, l.size>>20)
	}
	return fmt.Sprintf("replaying: %d MB", l.read.Load()>>20)
}
