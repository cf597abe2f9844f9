package assemble

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Stage is a part of the process that runs until its context ends.
type Stage struct {
	Name string
	Run  func(ctx context.Context) error
}

// RunStages starts the stages of all groups in order. When ctx or a stage ends, it stops the groups one after the
// other, the last group first: a source of work belongs in a later group than its consumers, and stops before them. The
// stages of a group stop together. RunStages returns the errors of all stages.
func RunStages(ctx context.Context, groups ...[]Stage) error {
	type group struct {
		stop context.CancelFunc
		done []chan error // by stage
	}
	running, end := context.WithCancel(ctx) // ends when ctx or a stage does
	defer end()
	started := make([]group, len(groups))
	for i, stages := range groups {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		started[i].stop = stop
		for _, s := range stages {
			done := make(chan error, 1)
			started[i].done = append(started[i].done, done)
			go func() {
				defer end()
				err := s.Run(own)
				if err != nil {
					err = fmt.Errorf("%s: %w", s.Name, err)
				}
				done <- err
			}()
		}
	}
	<-running.Done()
	var errs []error
	for _, g := range slices.Backward(started) {
		g.stop()
		for _, done := range g.done {
			errs = append(errs, <-done)
		}
	}
	return errors.Join(errs...)
}
