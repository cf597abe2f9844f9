package queue_test

import (
	"testing"
	"time"

	"sluice/backend/queue"
)

func TestMeterEstimatesTheTimeToDrain(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m queue.Meter
	within := func() (time.Duration, bool) { p := m.Pace(); return p.Within, p.Drains }
	if _, ok := within(); ok {
		t.Error("a meter without samples has a rate")
	}
	m.Sample(at, 1000, queue.Stats{Ready: 500, Leased: 100})
	if _, ok := within(); ok {
		t.Error("a meter with one sample has a rate")
	}
	m.Sample(at.Add(2*time.Second), 1400, queue.Stats{Ready: 600}) // 400 accepted, as many wait: 200 leave per second
	if d, ok := within(); !ok || d != 3*time.Second {
		t.Errorf("600 wait and 200 leave per second: %v, %v", d, ok)
	}
	for i := range 100 {
		m.Sample(at.Add(time.Duration(3+i)*time.Second), 1400, queue.Stats{Ready: 600}) // the workers have stopped
	}
	if d, ok := within(); ok && d < time.Minute {
		t.Errorf("nothing leaves the queue, and it drains within %v", d)
	}
	m.Sample(at.Add(200*time.Second), 1400, queue.Stats{})
	if d, ok := within(); !ok || d != 0 {
		t.Errorf("an empty queue: %v, %v", d, ok)
	}
	m.Sample(at.Add(201*time.Second), 900, queue.Stats{Ready: 10}) // Redis was rebuilt
	if _, ok := within(); ok {
		t.Error("the pace is known just after a rebuild")
	}
}

// In one sample, the number of accepted orders is 0, because the sales of the shard could not be read. When the number
// is known again, the increase must not count as orders that have left the queue.
func TestMeterIgnoresTheReturnOfAnUnknownNumber(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m queue.Meter
	var p queue.Pace
	for i, accepted := range []int64{1000, 1010, 0, 1020, 1030} { // five a second
		m.Sample(at.Add(time.Duration(2*i)*time.Second), accepted, queue.Stats{Ready: 50})
		if p = m.Pace(); p.PerSecond > 5 {
			t.Errorf("sample %d: %+v, although five orders leave per second", i, p)
		}
	}
	if !p.Known || p.PerSecond != 5 {
		t.Errorf("at the end: %+v", p)
	}
}

// During an outage of the database, the meter must not use the average from before the outage.
func TestMeterHasNoEstimateWhileNothingLeaves(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m queue.Meter
	sample := func(second, accepted, ready int64) queue.Pace {
		m.Sample(at.Add(time.Duration(second)*time.Second), accepted, queue.Stats{Ready: ready})
		return m.Pace()
	}
	sample(0, 1000, 600)
	sample(2, 1000, 400) // 100 leave per second
	for second := int64(4); second < 12; second += 2 {
		if p := sample(second, 1000+second, 400+second); !p.Drains {
			t.Errorf("after %d s without progress, which a slow batch takes as well: %+v", second-2, p)
		}
	}
	if p := sample(12, 1012, 412); p.Drains || !p.Known || p.PerSecond != 0 {
		t.Errorf("after 10 s in which nothing left: %+v", p)
	}
	if p := sample(14, 1012, 212); !p.Drains || p.PerSecond <= 0 {
		t.Errorf("after 200 have left: %+v", p)
	}
	if p := sample(60, 1012, 0); !p.Drains || p.Within != 0 {
		t.Errorf("an empty queue: %+v", p)
	}
	if p := sample(62, 1013, 1); !p.Drains {
		t.Errorf("an order that just came: %+v", p)
	}
}

// A database that does not respond writes no order, so Stop discards the average. The first orders that leave the queue
// after the outage give a new one.
func TestMeterHasNoEstimateWhileTheDatabaseIsDown(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m queue.Meter
	sample := func(second, ready int64, down bool) queue.Pace {
		m.Sample(at.Add(time.Duration(second)*time.Second), 1000, queue.Stats{Ready: ready})
		if down {
			m.Stop()
		}
		return m.Pace()
	}
	sample(0, 600, false)
	sample(2, 400, false)
	if p := sample(4, 200, true); !p.Drains || p.PerSecond != 100 {
		t.Errorf("orders left just before the outage: %+v", p)
	}
	for second := int64(6); second < 14; second += 2 {
		if p := sample(second, 200, true); p != (queue.Pace{}) {
			t.Errorf("after %d s: %+v", second-4, p)
		}
	}
	for second := int64(14); second < 60; second += 2 {
		if p := sample(second, 200, true); p.Drains || !p.Known || p.PerSecond != 0 {
			t.Errorf("after %d s: %+v", second-4, p)
		}
	}
	if p := sample(60, 180, false); !p.Drains || p.PerSecond != 10 || p.Within != 18*time.Second {
		t.Errorf("after the outage: %+v", p)
	}
}

// Orders that were accepted since the last sample, or too recently to be written, give no estimate: the time to drain
// is neither zero nor infinite.
func TestMeterHasNoEstimateForTheFirstOrders(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := make(queue.Meters, 1)
	sample := func(second, accepted, ready int64) {
		m[0].Sample(at.Add(time.Duration(second)*time.Second), accepted, queue.Stats{Ready: ready})
	}
	want := func(when string, now queue.Stats, known, drains bool) {
		t.Helper()
		_, within := m.Within([]*queue.Stats{&now})
		if p := m.Shard(0, &now); p.Known != known || p.Drains != drains || within != drains {
			t.Errorf("%s: %+v, within %t; want known %t, drains %t", when, p, within, known, drains)
		}
	}
	sample(0, 0, 0)
	sample(2, 0, 0)
	want("an empty queue", queue.Stats{}, true, true)
	want("orders since the last sample", queue.Stats{Leased: 3}, false, false)
	sample(4, 3, 3)
	want("orders that nothing has left yet", queue.Stats{Leased: 3}, false, false)
	sample(12, 3, 3)
	want("orders that nothing leaves", queue.Stats{Ready: 3}, true, false)
	sample(14, 3, 1)
	want("orders that leave", queue.Stats{Ready: 1}, true, true)
}

func TestMetersReportEachShardAndTheSlowest(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m, unknown := make(queue.Meters, 2), make([]*queue.Stats, 2)
	sample := func(shard int, second, accepted, ready int64) {
		m[shard].Sample(at.Add(time.Duration(second)*time.Second), accepted, queue.Stats{Ready: ready})
	}
	sample(0, 0, 1000, 500)
	sample(0, 1, 1000, 400) // 100 a second
	if _, ok := m.Within(unknown); ok {
		t.Error("the time to drain is known although one shard has no samples")
	}
	if d := m.RetryAfter(1); d != 5*time.Second {
		t.Errorf("Retry-After of a shard without samples: %v", d)
	}
	sample(1, 0, 0, 0)
	if p := m.Shard(1, nil); p.Known || !p.Drains || p.Within != 0 {
		t.Errorf("an empty shard: %+v", p)
	}
	sample(1, 1, 9000, 9000)
	sample(1, 11, 9000, 9000)
	if p := m.Shard(1, nil); p.Drains || m.RetryAfter(1) != time.Minute {
		t.Errorf("a stalled shard: %+v, Retry-After %v", p, m.RetryAfter(1))
	}
	if _, ok := m.Within(unknown); ok {
		t.Error("the time to drain is known although a shard is stalled")
	}
	for s := int64(12); s < 210; s++ {
		sample(1, s, 9000+10*(s-10), 9000)
	}
	if p := m.Shard(0, nil); !p.Known || p.PerSecond != 100 || p.Within != 4*time.Second ||
		m.RetryAfter(0) != 2*time.Second {
		t.Errorf("shard 0: %+v, Retry-After %v", p, m.RetryAfter(0))
	}
	d, ok := m.Within(unknown)
	if want := m.Shard(1, nil).Within; !ok || d != want || d < 890*time.Second || m.RetryAfter(1) != time.Minute {
		t.Errorf("all shards drain within %v, %v; the slower one within %v, Retry-After %v", d, ok, want, m.RetryAfter(1))
	}
}
