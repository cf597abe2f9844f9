package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/loop"
)

var errInterrupted = errors.New("interrupted")

// interruptible runs f, which may block without end, for example while it opens a pipe without a writer. When ctx is
// done it returns without waiting for f; the program must then exit.
func interruptible[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := f()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}

// readInput is interruptible for the input of a command: its other errors are usage errors.
func readInput[T any](ctx context.Context, read func() (T, error)) (T, error) {
	value, err := interruptible(ctx, read)
	if err != nil && !errors.Is(err, errInterrupted) {
		err = usageError{Err: err}
	}
	return value, err
}

// checkInterruptibly is interruptible for the checks before a command. They also run if ctx is done already: then the
// command itself reports what it has not done.
func checkInterruptibly[T any](ctx context.Context, check func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		return check()
	}
	return interruptible(ctx, check)
}

// orInterrupted returns err, or errInterrupted if a signal has ended the command. See isStopped.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// handlesHangup annotates commands that use SIGHUP for something else than their end.
const handlesHangup = "sighup"

// runsUntilSignal annotates commands that run until a signal ends them: a signal during their start is no error. Its
// value is the name of a flag with which the command ends without a signal, or "".
const runsUntilSignal = "service"

// isStopped reports whether err is that of a start that a signal has ended.
func isStopped(c *cobra.Command, err error) bool {
	unless, is := c.Annotations[runsUntilSignal]
	return is && !c.Flags().Changed(unless) && errors.Is(err, errInterrupted)
}

// untilHangup returns a context that SIGHUP ends too, as SIGTERM does: when its terminal is closed, a process finishes
// its work. It changes nothing for commands that handle SIGHUP themselves, and if the process was started with SIGHUP
// ignored, as nohup does. A command that runs until a signal ignores SIGPIPE: it continues when the reader of its
// output ends.
func untilHangup(ctx context.Context, root *cobra.Command, args []string) (context.Context, context.CancelFunc) {
	c, _, err := root.Find(args)
	if _, serves := c.Annotations[runsUntilSignal]; serves {
		signal.Ignore(syscall.SIGPIPE)
	}
	if err != nil || c.Annotations[handlesHangup] != "" || signal.Ignored(syscall.SIGHUP) {
		return ctx, func() {}
	}
	return untilSignal(ctx, syscall.SIGHUP)
}

// untilSignal returns a context that these signals end. A terminal sends them to the reader of the log too, such as
// tee, so the process ignores SIGPIPE from then on and completes its work.
func untilSignal(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	arriving, stop := received(signals...)
	go onSignal(ctx, arriving, func(os.Signal) {
		signal.Ignore(syscall.SIGPIPE)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// untilAnother returns a context that another SIGINT or SIGTERM ends after ctx has ended, for work that a signal does
// not interrupt. It ignores signals in the first second: timeout(1) sends one to the process and one to its group.
func untilAnother(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		loop.Sleep(longer, time.Second)
		signals, stop := received(os.Interrupt, syscall.SIGTERM)
		defer stop()
		onSignal(longer, signals, func(os.Signal) { cancel() })
	})
	return longer, func() { stop(); cancel() }
}

// received delivers these signals, until stop. One that arrives while another one waits is dropped.
func received(signals ...os.Signal) (_ <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	return c, func() { signal.Stop(c) }
}

// onSignal calls f for each signal, until ctx ends.
func onSignal(ctx context.Context, signals <-chan os.Signal, f func(os.Signal)) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			f(s)
		}
	}
}
