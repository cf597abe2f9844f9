package sale

import "strings"

// A rehearsal is a copy of a sale on which simulated buyers test the whole path of a purchase. The edge, Redis, the
// queue and SQL treat it like any other sale. Only its id marks it, so that no store has to be queried and a backup of
// a store cannot be mistaken for real sales.
const (
	// RehearsalPrefix begins the id of every rehearsal, and of no other sale.
	RehearsalPrefix = "rehearsal-"
	// rehearsalMark separates a rehearsal's id from the rest of the id of each simulated buyer. Ids of sales do not
	// contain it.
	rehearsalMark = "/"
)

// RehearsalID returns the id of a rehearsal of a sale. The nonce makes it unique and unguessable; if the id would be
// too long, the sale's id is truncated.
func RehearsalID(saleID, nonce string) string {
	room := MaxIDLen - len(RehearsalPrefix) - len("-") - len(nonce)
	return RehearsalPrefix + saleID[:min(len(saleID), max(room, 0))] + "-" + nonce
}

// IsRehearsal reports whether a sale is a rehearsal.
func IsRehearsal(saleID string) bool { return strings.HasPrefix(saleID, RehearsalPrefix) }

// RehearsalBuyer returns the id of a simulated buyer of a rehearsal.
func RehearsalBuyer(saleID, name string) string { return saleID + rehearsalMark + name }

// Meets reports whether a buyer may access a sale: the simulated buyers of a rehearsal access that rehearsal only, and
// all other buyers access real sales only. For all others, the sale must appear not to exist.
func Meets(buyer, saleID string) bool {
	rehearsal, _, marked := strings.Cut(buyer, rehearsalMark)
	if marked && IsRehearsal(rehearsal) {
		return rehearsal == saleID
	}
	return !IsRehearsal(saleID)
}
