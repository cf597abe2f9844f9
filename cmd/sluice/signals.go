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

// readInput is interruptible for the input of a command. It returns errors of read as usage errors.
func readInput[T any](ctx context.Context, read func() (T, error)) (T, error) {
	value, err := interruptible(ctx, read)
	if err != nil && !errors.Is(err, errInterrupted) {
		err = usageError{Err: err}
	}
	return value, err
}

// checkInterruptibly is interruptible for the checks before a command. If ctx is done already, it runs the check
// without interruption, so that the command starts and itself reports that it was interrupted.
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

// handlesHangup annotates commands that SIGHUP does not end, because they use it for another purpose.
const handlesHangup = "sighup"

// runsUntilSignal annotates commands that run until a signal ends them. A signal during their start is no error. The
// value of the annotation is the name of a flag with which the command ends without a signal, or "".
const runsUntilSignal = "service"

// isStopped reports whether err means that a signal has ended a command that runs until a signal.
func isStopped(c *cobra.Command, err error) bool {
	unless, is := c.Annotations[runsUntilSignal]
	return is && !c.Flags().Changed(unless) && errors.Is(err, errInterrupted)
}

// untilHangup returns a context that SIGHUP ends, as SIGTERM does, so that a process finishes its work when its
// terminal is closed. It returns ctx itself for commands that handle SIGHUP, and if the process was started with SIGHUP
// ignored, as nohup does. It also makes a command that runs until a signal ignore SIGPIPE, so that the command
// continues when the reader of its output ends.
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

// untilSignal returns a context that these signals end. A terminal sends a signal also to the process that reads the
// log, such as tee. Therefore sluice ignores SIGPIPE after the signal, and completes its work.
func untilSignal(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	arriving, stop := received(signals...)
	go onSignal(ctx, arriving, func(os.Signal) {
		signal.Ignore(syscall.SIGPIPE)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// untilAnother returns a context for work that the first signal must not interrupt. A SIGINT or SIGTERM that arrives
// after the end of ctx ends it. Signals in the first second after that end are ignored, because timeout(1) sends the
// same signal twice: to the process and to its group.
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

// received returns a channel of these signals, until stop is called. A signal that arrives while another one waits in
// the channel is dropped.
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
