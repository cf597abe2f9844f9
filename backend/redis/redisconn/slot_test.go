package redisconn

import "testing"

// The examples of the Redis Cluster specification. The slot depends only on the text in the first braces, unless that
// text is empty.
func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{
		"123456789": 0x31c3, "{user1000}.following": slotOf("user1000"), "foo{{bar}}zap": slotOf("{bar"),
		"foo{bar}{zap}": slotOf("bar"), "foo{}{bar}": 8363, "{123456789": 5574,
	} {
		if got := slotOf(key); got != want {
			t.Errorf("%q is in slot %d, want %d", key, got, want)
		}
	}
}
