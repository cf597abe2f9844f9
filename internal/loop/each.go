package loop

import "golang.org/x/sync/errgroup"

// Each calls do for all items concurrently, so that items that do not respond add up to one delay and not to one delay
// each. At most limit calls are in progress at a time; -1: no limit. It returns the errors by item.
func Each[T any](items []T, limit int, do func(i int, item T) error) []error {
	errs := make([]error, len(items))
	var running errgroup.Group
	running.SetLimit(limit)
	for i, item := range items {
		running.Go(func() error { errs[i] = do(i, item); return nil })
	}
	_ = running.Wait() // the functions return nil
	return errs
}
