package sale

import "strings"

// A rehearsal is a copy of a sale on which a crowd of machines tries the whole way of a purchase. It is a sale like any other to the edge, Redis, the queue and
// SQL; its name alone says what it is, so that no store has to be asked, and nothing that reads an old copy of a store can take it for a real one.
const (
	// RehearsalPrefix begins the id of every rehearsal, and of no other sale.
	RehearsalPrefix = "rehearsal-"
	// rehearsalMark stands between a rehearsal's id and the rest of the name of each buyer in its crowd. No id holds it.
	rehearsalMark = "/"
)

// RehearsalID names a rehearsal of a sale. The nonce makes it one of its own, which nobody can guess; it is kept whole, and the sale's id is cut where both
// together are too long.
func RehearsalID(saleID, nonce string) string {
	room := MaxIDLen - len(RehearsalPrefix) - len("-") - len(nonce)
	return RehearsalPrefix + saleID[:min(len(saleID), max(room, 0))] + "-" + nonce
}

// IsRehearsal tells whether a sale is a rehearsal.
func IsRehearsal(saleID string) bool { return strings.HasPrefix(saleID, RehearsalPrefix) }

// RehearsalBuyer names a buyer in the crowd of a rehearsal.
func RehearsalBuyer(saleID, name string) string { return saleID + rehearsalMark + name }

// Meets tells whether a buyer and a sale may have to do with each other: the crowd of a rehearsal with that rehearsal, and everybody else with every other sale.
// What does not meet does not exist for each other, so nobody buys a real unit in a rehearsal, nor a rehearsed one for real.
func Meets(buyer, saleID string) bool {
	crowdOf, _, marked := strings.Cut(buyer, rehearsalMark)
	if marked && IsRehearsal(crowdOf) {
		return crowdOf == saleID
	}
	return !IsRehearsal(saleID)
}
