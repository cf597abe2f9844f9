package queue_test

import (
	"testing"
	"time"

	"sluice/backend/queue"
)

func TestMeterKnowsWhenTheQueueIsDrained(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m queue.Meter
	if _, ok := m.Within(); ok {
		t.Error("it knows before it was told anything")
	}
	m.Sample(at, 1000, queue.Stats{Ready: 500, Leased: 100})
	if _, ok := m.Within(); ok {
		t.Error("one count tells no pace")
	}
	m.Sample(at.Add(2*time.Second), 1400, queue.Stats{Ready: 600}) // 400 came, none more wait: 200 a second leave
	if d, ok := m.Within(); !ok || d != 3*time.Second {
		t.Errorf("600 wait and 200 a second leave: %v, %v", d, ok)
	}
	for i := range 100 {
		m.Sample(at.Add(time.Duration(3+i)*time.Second), 1400, queue.Stats{Ready: 600}) // the workers are gone
	}
	if d, ok := m.Within(); ok && d < time.Minute {
		t.Errorf("nothing leaves the queue, and it is drained in %v", d)
	}
	m.Sample(at.Add(200*time.Second), 1400, queue.Stats{})
	if d, ok := m.Within(); !ok || d != 0 {
		t.Errorf("an empty queue: %v, %v", d, ok)
	}
	m.Sample(at.Add(201*time.Second), 900, queue.Stats{Ready: 10}) // Redis was rebuilt
	if _, ok := m.Within(); ok {
		t.Error("after a rebuild the pace is not known")
	}
}
