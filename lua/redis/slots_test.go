package redisscript_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
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
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	script := redis.NewScript(redisscript.Read("include/slots.lua") + `
		local answers = {}
		for i = 2, #ARGV, 2 do
			local slot, text = assign_slot(ARGV[1], ARGV[i], tonumber(ARGV[i + 1]))
			answers[#answers + 1] = string.format('%s %s %s', slot or 'full', text or '', slot_of(ARGV[1], ARGV[i]) or 0)
		end
		return answers`)
	texts := allSlots(4)
	for _, text := range texts { // with requests, and with those of returned orders
		texts = append(texts, strings.ReplaceAll(text, "1", "1:one")+";7:old")
	}
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

// A request finds its order while the order has a slot, and afterwards until 16 more orders of the buyer were returned.
func TestRequestFindsItsOrder(t *testing.T) {
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	script := redis.NewScript(redisscript.Read("include/slots.lua") + `
		local text = ARGV[1]
		for i = 2, #ARGV do
			text = release_slot(text, ARGV[i]) or 'no slot'
		end
		return { text, order_of(text, 'first______') or '', order_of(text, 'second-----') or '' }`)
	const one, two = "41:first______", "42:second-----"
	var returned []string // by 16 orders
	for i := range 16 {
		returned = append(returned, fmt.Sprintf(";%d:%011d", 20+i, i))
	}
	earlier := strings.Join(returned, "")
	for _, c := range []struct {
		text     string
		released []string
		want     []string
	}{
		{"", nil, []string{"", "", ""}},
		{one, nil, []string{one, "41", ""}},
		{one + "," + two, nil, []string{one + "," + two, "41", "42"}},
		{one + "," + two, []string{"41"}, []string{"," + two + ";" + one, "41", "42"}},
		{one + "," + two, []string{"42", "41"}, []string{";" + two + ";" + one, "41", "42"}},
		{"7," + one, []string{"7"}, []string{"," + one, "41", ""}},
		{one, []string{"4"}, []string{"no slot", "", ""}},
		{one, []string{"41", "41"}, []string{"no slot", "", ""}},
		{one + earlier, []string{"41"}, []string{strings.Join(returned[1:], "") + ";" + one, "41", ""}},
		{two + ";" + one + earlier[len(returned[0]):], []string{"42"}, []string{earlier[len(returned[0]):] + ";" + two, "", "42"}},
		{"7" + earlier, []string{"7"}, []string{earlier, "", ""}},
	} {
		args := []any{c.text}
		for _, id := range c.released {
			args = append(args, id)
		}
		if got, err := script.Run(t.Context(), client, nil, args...).StringSlice(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q without %q: %q, %v, want %q", c.text, c.released, got, err, c.want)
		}
	}
}
