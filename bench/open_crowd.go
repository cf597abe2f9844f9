package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/test/testenv"
)

// crowd holds the processes that hold streams open.
type crowd []*openerProcess

type openerProcess struct {
	open int // streams
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  bytes.Buffer
}

func (h *openDeployment) startCrowd(k openKind, n int) (c crowd) {
	self, err := os.Executable()
	h.stage.check(err)
	var addrs []string
	for _, b := range h.backends {
		addrs = append(addrs, b.addr)
	}
	for first := 0; first < n; first += perOpener {
		o := &openerProcess{}
		o.cmd = exec.Command(self, "opener", "--addrs", strings.Join(addrs, ","), "--path", k.path,
			"--first", strconv.Itoa(first), "--n", strconv.Itoa(min(perOpener, n-first)))
		o.cmd.SysProcAttr = testenv.EndWithParent(syscall.SIGKILL, syscall.SysProcAttr{})
		o.cmd.Stderr = &o.log
		o.in, err = o.cmd.StdinPipe()
		h.stage.check(err)
		out, err := o.cmd.StdoutPipe()
		h.stage.check(err)
		o.out = json.NewDecoder(out)
		h.stage.check(o.cmd.Start())
		c = append(c, o)
	}
	return c
}

// opened waits until all streams are open or rejected, and adds up the results.
func (c crowd) opened(sum *opened) error {
	for _, o := range c {
		var one opened
		if err := o.answer(&one); err != nil {
			return err
		}
		if one.Refused > 0 && (sum.Refused == 0 || one.AfterMin < sum.AfterMin) {
			sum.AfterMin = one.AfterMin
		}
		o.open = one.Open
		sum.AfterMax = max(sum.AfterMax, one.AfterMax)
		sum.Open, sum.Refused, sum.Failed = sum.Open+one.Open, sum.Refused+one.Refused, sum.Failed+one.Failed
		sum.Error = cmp.Or(sum.Error, one.Error)
	}
	return nil
}

func (o *openerProcess) answer(to any) error {
	if err := o.out.Decode(to); err != nil {
		_ = o.cmd.Wait() // completes its output
		return fmt.Errorf("an opener ended: %w\n%s", err, o.log.String())
	}
	return nil
}

func (o *openerProcess) call(line string, to any) error {
	if _, err := io.WriteString(o.in, line+"\n"); err != nil {
		return err
	}
	return o.answer(to)
}

// measureEvent causes an event and measures when the streams receive it.
func (c crowd) measureEvent(ctx context.Context, k openKind, h *openDeployment, r *openResult) error {
	var ignored receipts
	for _, o := range c {
		if err := o.call("mark", &ignored); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := k.cause(ctx, h); err != nil {
		return err
	}
	done := time.Now() // it is committed; a stream may have received it a little earlier
	want := k.receivers
	if want == 0 {
		want = r.answers.Open
	}
	var all []float64
	for i, o := range c { // the receivers are the first ones, or all
		mine := 0
		switch {
		case k.receivers == 0:
			mine = o.open
		case i == 0:
			mine = k.receivers
		}
		var received receipts
		if err := o.call("await "+strconv.Itoa(mine), &received); err != nil {
			return err
		}
		if received.Ended > 0 {
			return fmt.Errorf("%d streams ended unexpectedly", received.Ended)
		}
		for _, at := range received.At {
			all = append(all, max(0, float64(at-done.UnixNano())/1e6))
		}
	}
	if len(all) < want {
		return fmt.Errorf("%d streams received it, want %d, %v after it began", len(all), want,
			time.Since(begin).Round(time.Second))
	}
	r.eventP50, r.eventP99 = percentiles(all)
	return nil
}

// leave closes all streams without a closing message.
func (c crowd) leave() error {
	var all error
	for _, o := range c {
		all = errors.Join(all, o.in.Close(), o.cmd.Wait())
	}
	return all
}
