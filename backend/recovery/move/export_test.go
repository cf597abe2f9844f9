package move

import "time"

// SetLock sets the duration of the lock, for a mover that is suspended past it and has not noticed.
func (m *Mover) SetLock(d time.Duration) { m.lock = d }
