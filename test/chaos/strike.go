package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// strike injects one fault: it waits until its target is intact, injects it, waits for its duration, and undoes it.
// struck is called when the fault begins, for a killed worker with its process id.
//
// A worker is killed while it holds a lease, if it takes one soon: busy reports whether a process holds one.
func (s *stage) strike(ctx context.Context, f Fault, busy func(pid int) bool, struck func(pid int)) error {
	switch f.Kind {
	case WorkerKilled:
		return kill(s.workers[f.Target], f.For, busy, struck)
	case BackendKilled:
		return kill(s.backends[f.Target], f.For, nil, struck)
	case WatcherKilled:
		return kill(s.watchers[f.Target], f.For, nil, struck)
	case WorkerFrozen:
		return freeze(s.workers[f.Target], f.For, struck)
	case BackendFrozen:
		return freeze(s.backends[f.Target], f.For, struck)
	case WatcherFrozen:
		return freeze(s.watchers[f.Target], f.For, struck)
	case RedisKilled,
		RedisFrozen,
		MasterReplaced,
		OldPromoted,
		EmptyPromoted,
		MasterHandedOver,
		SlotMoved,
		MoveEndedHalfway:
		s.redis.strike(f, func() { struck(0) })
		return nil
	case PostgresKilled:
		return during(&s.pgLock, f.For, struck, s.pg.Crash, s.pg.Start)
	case DiskFull:
		s.pgLock.Lock()
		defer s.pgLock.Unlock()
		undo, err := s.disk.fill(ctx)
		if err != nil {
			return fmt.Errorf("disk full: %w", err)
		}
		struck(0)
		time.Sleep(f.For)
		return undo()
	}
	s.linkLocks[f.Target].Lock()
	defer s.linkLocks[f.Target].Unlock()
	undo, err := s.links[f.Target].disturb(f)
	if err != nil {
		return fmt.Errorf("%s on %s: %w", f.Kind, s.links[f.Target].name, err)
	}
	struck(0)
	time.Sleep(f.For)
	return undo()
}

func kill(a *actor, away time.Duration, busy func(pid int) bool, struck func(pid int)) error {
	a.Lock()
	defer a.Unlock()
	select {
	case <-a.Done():
		return fmt.Errorf("a process exited without a fault:\n%s", a.Output())
	default:
	}
	pid := a.Pid()
	if busy != nil {
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if !busy(pid) {
				continue
			}
			a.Signal(syscall.SIGSTOP) // it may have finished in the meantime: then it continues
			if busy(pid) {
				break
			}
			a.Signal(syscall.SIGCONT)
		}
	}
	a.End(syscall.SIGKILL)
	struck(pid)
	time.Sleep(away)
	a.Start()
	return nil
}

func freeze(a *actor, lasts time.Duration, struck func(pid int)) error {
	a.Lock()
	defer a.Unlock()
	a.Signal(syscall.SIGSTOP)
	struck(0)
	time.Sleep(lasts)
	a.Signal(syscall.SIGCONT)
	return nil
}

func during(lock *sync.Mutex, lasts time.Duration, struck func(pid int), do, undo func()) error {
	lock.Lock()
	defer lock.Unlock()
	do()
	struck(0)
	time.Sleep(lasts)
	undo()
	return nil
}

// ended returns the processes that have exited without a fault.
func (s *stage) ended() []string {
	var gone []string
	for _, group := range [][]*actor{s.backends, s.workers, s.watchers} {
		for i, a := range group {
			a.Lock()
			select {
			case <-a.Done():
				gone = append(gone, fmt.Sprintf("process %d exited without a fault:\n%s", i, a.Output()))
			default:
			}
			a.Unlock()
		}
	}
	return gone
}
