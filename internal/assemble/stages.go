package assemble

import (
	"context"
	"errors"
	"fmt"
)

// Stage is a part of the process that runs until its context ends.
type Stage struct {
	Name string
	Run  func(ctx context.Context) error
}

// RunStages starts the stages in order. When ctx or a stage ends, it stops them one after the other in reverse order,
// so that a source of work stops before its consumer. It returns the errors of all stages.
func RunStages(ctx context.Context, stages []Stage) error {
	type running struct {
		stop context.CancelFunc
		done chan error
	}
	ended := make(chan struct{}, len(stages))
	started := make([]running, len(stages))
	for i, s := range stages {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan error, 1)
		started[i] = running{stop, done}
		go func() {
			err := s.Run(own)
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Name, err)
			}
			done <- err
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		started[i].stop()
		errs = append(errs, <-started[i].done)
	}
	return errors.Join(errs...)
}
