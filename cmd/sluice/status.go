package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"sluice/internal/loop"
)

// onTerminal reports whether standard error is a terminal that can overwrite a line.
func (p *program) onTerminal() bool {
	f, ok := p.errOut.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && p.getenv("TERM") != "dumb"
}

// confirm prompts for name, after a warning. It returns an error unless the user types the name, or if there is no
// terminal.
func (p *program) confirm(ctx context.Context, warning, name string) error {
	if !p.interactive {
		return usage("%s Confirm with --yes", warning)
	}
	fmt.Fprintf(p.errOut, "%s Type %s to confirm: ", warning, name)
	answer, err := interruptible(ctx, func() (string, error) {
		return bufio.NewReader(io.LimitReader(p.in, 1024)).ReadString('\n')
	})
	if err != nil {
		fmt.Fprintln(p.errOut) // the line of the prompt has not ended
	}
	if strings.TrimSpace(answer) != name {
		if errors.Is(err, io.EOF) || errors.Is(err, errInterrupted) {
			err = nil
		}
		return errors.Join(errors.New("not confirmed; nothing was changed"), err)
	}
	return nil
}

// status shows the progress of long work on standard error: on a terminal in lines that it overwrites, elsewhere in a
// line for each change.
type status struct {
	w        io.Writer
	terminal bool
	lines    int // on the terminal
	last     string
}

func (p *program) status() *status { return &status{w: p.errOut, terminal: p.onTerminal()} }

// show prints a line and skips repetitions. The line may contain text of a server.
func (s *status) show(line string) {
	line = visible(line)
	switch {
	case line == s.last:
	case s.terminal:
		s.overwrite(line)
	default:
		fmt.Fprintln(s.w, line)
	}
	s.last = line
}

// overwrite prints lines on a terminal in place of those that it printed before. It switches off the wrapping of lines,
// because the next call could not find the beginning of a wrapped line. Each line ends in a space, because a terminal
// shows the last character of a line that is too long in the last column.
func (s *status) overwrite(lines ...string) {
	up := ""
	if s.lines > 1 {
		up = fmt.Sprintf("\x1b[%dA", s.lines-1)
	}
	_, _ = io.WriteString(s.w, "\r"+up+"\x1b[J\x1b[?7l"+strings.Join(lines, " \n")+" \x1b[?7h")
	s.lines = len(lines)
}

// done clears the line of show on a terminal. It may be called again.
func (s *status) done() {
	if s.lines > 0 {
		fmt.Fprint(s.w, "\r\x1b[J")
	}
	s.lines, s.last = 0, ""
}

// patience is the wait after which progress is shown, and the interval of its updates.
const patience = time.Second

// waiting shows the text that what returns, and the elapsed time, on a terminal. It does so once a second, beginning
// after one second, until done is called.
func (p *program) waiting(what func() string) (done func()) {
	if !p.onTerminal() {
		return func() {}
	}
	s, begun := p.status(), time.Now()
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer s.done()
		for loop.Sleep(ctx, patience); ctx.Err() == nil; loop.Sleep(ctx, patience) {
			s.show(fmt.Sprintf("%s: %s", what(), time.Since(begun).Round(time.Second)))
		}
	})
	return func() { stop(); ended.Wait() }
}
