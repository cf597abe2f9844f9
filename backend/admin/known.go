package admin

import "sync"

// known are the ids of the sales that SQL had when it was last read, and of those made here since.
type known struct {
	mu   sync.RWMutex
	read bool
	ids  map[string]bool
}

func (k *known) set(ids map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read, k.ids = true, ids
}

func (k *known) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]bool{}
	}
	k.ids[id] = true
}

func (k *known) has(id string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return !k.read || k.ids[id]
}

// Known tells whether SQL has this sale, as far as this process knows without asking: a sale that Redis does not hold and Known does is not missing, it
// waits to be loaded. Before SQL was read for the first time it may be any.
func (d *Desk) Known(id string) bool { return d.known.has(id) }
