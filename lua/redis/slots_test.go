package redisscript

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// allSlots returns every text of up to n slots that holds orders 1 to 3, each at most once.
func allSlots(n int) []string {
	texts := []string{""}
	for last := texts; n > 1; n-- {
		var longer []string
		for _, text := range last {
			for _, id := range []string{"", "1", "2", "3"} {
				if id == "" || !strings.Contains(text, id) {
					longer = append(longer, text+","+id)
				}
			}
		}
		texts, last = append(texts, longer...), longer
	}
	for _, text := range texts {
		if strings.HasPrefix(text, ",") {
			texts = append(texts, "1"+strings.Replace(text, "1", "", 1))
		}
	}
	return texts
}

// The rebuild and the load assign slots in Go, purchases in Lua. Both must read and write the same text.
func TestLuaAndGoAssignTheSameSlots(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	script := redis.NewScript(read("include/slots.lua") + `
		local answers = {}
		for i = 2, #ARGV, 2 do
			local slot, text = assign_slot(ARGV[1], ARGV[i], tonumber(ARGV[i + 1]))
			answers[#answers + 1] = string.format('%s %s %s', slot or 'full', text or '', slot_of(ARGV[1], ARGV[i]) or 0)
		end
		return answers`)
	texts := allSlots(4)
	if len(texts) < 50 {
		t.Fatalf("only %d texts", len(texts))
	}
	for _, text := range texts {
		var args []any
		var want []string
		for id := sale.OrderID(1); id <= 4; id++ {
			for perBuyer := 1; perBuyer <= 4; perBuyer++ {
				args = append(args, id.String(), perBuyer)
				want = append(want, assignInGo(keyspace.Slots(text), id, perBuyer))
			}
		}
		got, err := script.Run(t.Context(), client, nil, append([]any{text}, args...)...).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("slots %q, order and limit %v: Lua %q, Go %q", text, args[2*i:2*i+2], got[i], want[i])
			}
		}
	}
}

func assignInGo(s keyspace.Slots, id sale.OrderID, perBuyer int) string {
	if slot := s.Find(id); slot > 0 {
		return fmt.Sprintf("0  %d", slot)
	}
	if s.Count() >= perBuyer {
		var latest sale.OrderID
		for _, held := range s.All() {
			latest = held
		}
		return fmt.Sprintf("full %s 0", latest)
	}
	slot := s.Empty(1)
	return fmt.Sprintf("%d %s 0", slot, s.With(id, slot))
}
