package assemble

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A source of work stops before its consumers. Parts that do not depend on each other stop together: each may take a
// second, because it waits in Redis.
func TestStagesOfAGroupStopTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if one stage waits for the end of another one
		ctx, stop := context.WithCancel(t.Context())
		stop()
		sourceEnded, stopping := false, make(chan struct{})
		consumer := func(meet func()) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				if !sourceEnded {
					t.Error("a consumer was stopped before the source of its work")
				}
				meet()
				return errors.New("failed")
			}
		}
		err := RunStages(ctx, []Stage{
			{Name: "one", Run: consumer(func() { stopping <- struct{}{} })},
			{Name: "other", Run: consumer(func() { <-stopping })},
		}, []Stage{{Name: "source", Run: func(ctx context.Context) error {
			<-ctx.Done()
			sourceEnded = true
			return nil
		}}})
		if want := "one: failed\nother: failed"; err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	})
}
