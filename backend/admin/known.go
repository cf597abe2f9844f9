package admin

import "sync"

// knownSales holds the ids of the sales that SQL had when it was read last, and of those created by this process since.
type knownSales struct {
	mu   sync.RWMutex
	read bool
	ids  map[string]bool
}

func (k *knownSales) set(ids map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read, k.ids = true, ids
}

func (k *knownSales) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]bool{}
	}
	k.ids[id] = true
}

func (k *knownSales) has(id string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return !k.read || k.ids[id]
}

// Known reports from memory whether SQL has a sale. A known sale that Redis does not hold waits to be loaded. Before
// SQL was read for the first time, every id is known.
func (s *Service) Known(id string) bool { return s.known.has(id) }
