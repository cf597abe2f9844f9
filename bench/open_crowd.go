package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// crowd is the processes that hold streams open.
type crowd struct {
	openers []*openerProcess
	sum     opened
}

type openerProcess struct {
	open int // streams
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  string
}

func (h *openHouse) startCrowd(ctx context.Context, k openKind, n int) (*crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crowd{}
	for first := 0; first < n; first += perOpener {
		o := &openerProcess{log: filepath.Join(h.stage.TempDir(), "opener.log")}
		o.cmd = exec.CommandContext(ctx, self, "opener", "--addrs", strings.Join(h.addrs, ","), "--path", k.path,
			"--first", strconv.Itoa(first), "--n", strconv.Itoa(min(perOpener, n-first)))
		o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(o.log)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		o.cmd.Stderr = log
		if o.in, err = o.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		out, err := o.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		o.out = json.NewDecoder(out)
		if err := o.cmd.Start(); err != nil {
			return nil, err
		}
		c.openers = append(c.openers, o)
	}
	for _, o := range c.openers {
		var one opened
		if err := o.answer(&one); err != nil {
			return nil, err
		}
		if one.Refused > 0 && (c.sum.Refused == 0 || one.AfterMin < c.sum.AfterMin) {
			c.sum.AfterMin = one.AfterMin
		}
		o.open = one.Open
		c.sum.AfterMax = max(c.sum.AfterMax, one.AfterMax)
		c.sum.Open, c.sum.Refused, c.sum.Failed = c.sum.Open+one.Open, c.sum.Refused+one.Refused, c.sum.Failed+one.Failed
		if c.sum.Error == "" {
			c.sum.Error = one.Error
		}
	}
	return c, nil
}

func (o *openerProcess) answer(to any) error {
	if err := o.out.Decode(to); err != nil {
		said, _ := os.ReadFile(o.log)
		return fmt.Errorf("an opener ended: %w\n%s", err, said)
	}
	return nil
}

func (o *openerProcess) ask(line string, to any) error {
	if _, err := io.WriteString(o.in, line+"\n"); err != nil {
		return err
	}
	return o.answer(to)
}

// measureEvent causes an event and measures when the streams receive it.
func (c *crowd) measureEvent(ctx context.Context, k openKind, h *openHouse, r *openResult) error {
	var ignored hearing
	for _, o := range c.openers {
		if err := o.ask("mark", &ignored); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := k.happen(ctx, h); err != nil {
		return err
	}
	done := time.Now() // it is committed; a stream may have heard of it a little earlier
	want := k.tells
	if want == 0 {
		want = r.Answers.Open
	}
	var all []float64
	for i, o := range c.openers { // the receivers are the first ones, or all
		mine := 0
		switch {
		case k.tells == 0:
			mine = o.open
		case i == 0:
			mine = k.tells
		}
		var heard hearing
		if err := o.ask("heard "+strconv.Itoa(mine), &heard); err != nil {
			return err
		}
		if heard.Ended > 0 {
			return fmt.Errorf("%d streams ended unexpectedly", heard.Ended)
		}
		for _, at := range heard.At {
			all = append(all, max(0, float64(at-done.UnixNano())/1e6))
		}
	}
	if len(all) < want {
		return fmt.Errorf(
			"%d streams heard of it, want %d, %v after it began",
			len(all),
			want,
			time.Since(begin).Round(time.Second),
		)
	}
	slices.Sort(all)
	r.Told, r.ToldP50, r.ToldP99 = len(all), quantile(all, 0.5), quantile(all, 0.99)
	return nil
}

// leave closes all streams, without a word.
func (c *crowd) leave() error {
	var all error
	for _, o := range c.openers {
		all = errors.Join(all, o.in.Close(), o.cmd.Wait())
	}
	return all
}
