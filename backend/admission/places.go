package admission

import "strings"

// The value of a buyer in the hash keyspace.Shard.Buyers: order ids by place, comma-separated, a place given back left empty.

// placeOf is the place of id in held, from 1; 0 when it is not there.
func placeOf(held, id string) int {
	for nth := 1; held != ""; nth++ {
		place, rest, _ := strings.Cut(held, ",")
		if place == id {
			return nth
		}
		held = rest
	}
	return 0
}

// withPlace is held with id at the place nth, from 1, or at the next free one.
func withPlace(held, id string, nth int) string {
	places := strings.Split(held, ",")
	for {
		for len(places) < nth {
			places = append(places, "")
		}
		if places[nth-1] == "" {
			places[nth-1] = id
			return strings.Join(places, ",")
		}
		nth++
	}
}
