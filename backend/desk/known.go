package desk

import "sync/atomic"

// known are the ids of the sales that SQL had when it was last read.
type known struct {
	ids atomic.Pointer[map[string]bool]
}

func (k *known) set(ids map[string]bool) { k.ids.Store(&ids) }

func (k *known) has(id string) bool {
	ids := k.ids.Load()
	return ids != nil && (*ids)[id]
}

// Known tells whether SQL had this sale at the last reconciliation, without asking anybody: a sale that Redis does not hold and Known does is not
// missing, it waits to be loaded.
func (d *Desk) Known(id string) bool { return d.known.has(id) }
