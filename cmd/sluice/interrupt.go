package main

import (
	"context"
	"errors"
)

var errInterrupted = errors.New("interrupted")

// interruptible runs f, which may wait for ever: to open a pipe is to wait for who writes to it. When ctx is done it does not wait for f any longer, and
// f is to be left alone: the program is about to end.
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
