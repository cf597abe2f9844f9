package redisconn

import (
	"testing"
	"testing/synctest"
	"time"
)

// counted is a finder that counts queries.
type counted struct{ queries *int }

func (counted) limit() time.Duration { return time.Second }
func (counted) forget()              {}
func (c counted) query([]string) (answer, error) {
	*c.queries++
	return answer{master: "127.0.0.1:1"}, nil
}

// While no node has a slot, every command is redirected. The nodes must not be queried as often.
func TestRedirectedCommandsQuerySeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queries := 0
		m := &master{finder: counted{&queries}}
		for range 1000 {
			m.lookAgain()
			<-time.After(time.Millisecond)
		}
		if want := int(time.Second / lookInterval); queries != want {
			t.Errorf("%d queries in a second, want %d", queries, want)
		}
	})
}
