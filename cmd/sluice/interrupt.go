package main

import (
	"context"
	"errors"
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

// checkInterruptibly is interruptible for the checks before a command. They also run if ctx is done already: then the
// command itself reports what it has not done.
func checkInterruptibly[T any](ctx context.Context, check func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		return check()
	}
	return interruptible(ctx, check)
}

// orInterrupted returns err, or errInterrupted if a signal has ended the command.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// unlessStopped returns nil for the error of a start that a signal has ended.
func unlessStopped(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil || errors.Is(err, context.Canceled)
	if !stopped {
		return err
	}
	return nil
}
