package rebuild_test

import (
	"os/signal"
	"syscall"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/sale"
)

// A backend accepts an order and crashes before it records the order. Another backend returns the order to a replay and
// records it once. A recorded order that was cancelled is not restored, because it is a row.
func TestReplayedOrderIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 2)
	first := admissiontest.NewAdmitter(w.t, w.raw(), space) // without a journal
	buy := func(a *admission.Admitter, key string) admission.Decision {
		t.Helper()
		d, err := a.Admit(
			w.ctx, admission.Request{SaleID: "s", Buyer: "ann", Key: key, KeyTTL: time.Minute, Fingerprint: "f"},
		)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	cancelled := buy(first, "k1")
	if err := w.store.Write(w.ctx, w.take("s", 1).Messages); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.store.CancelOrder(w.ctx, cancelled.OrderID); err != nil {
		t.Fatal(err)
	}
	waiting := buy(first, "k2")
	for range 3 {
		for key, was := range map[string]admission.Decision{"k1": cancelled, "k2": waiting} {
			if d := buy(w.admit, key); d.Outcome != sale.Replayed || d.OrderID != was.OrderID {
				t.Fatalf("replay of %s: %v %s", key, d.Outcome, d.OrderID)
			}
		}
	}
	lines := 0
	if _, err := w.journal.Orders(func(sale.Order) { lines++ }); err != nil || lines != 2 {
		t.Errorf("%d records in the journal, want one per order; %v", lines, err)
	}
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
}

// An order whose record did not fit on the disk is recorded by its replay.
func TestReplayIsRecordedAfterAFullDisk(t *testing.T) {
	w := newWorld(t)
	order := sale.Order{ID: 1<<32 + 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
	wantRecords := func(want int) {
		t.Helper()
		records := 0
		if _, err := w.journal.Orders(func(sale.Order) { records++ }); err != nil || records != want {
			t.Errorf("%d records in the journal, want %d; %v", records, want, err)
		}
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var all syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: all.Max}); err != nil {
		t.Fatal(err)
	}
	w.writer.Record(1, []sale.Order{order})
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		t.Fatal(err)
	}
	wantRecords(0)
	for range 2 {
		w.writer.Record(1, []sale.Order{order})
		wantRecords(1)
	}
}

// A rebuild keeps the requests that are stored with orders, also if it corrects the slots of their buyer: here, the
// first order of two is cancelled.
func TestReplayAfterARebuildGetsItsOrder(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 2)
	buy := func(key string) admission.Decision {
		t.Helper()
		d, err := w.admit.Admit(w.ctx, admission.Request{SaleID: "s", Buyer: "ann", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, second := buy("k1"), buy("k2")
	w.write("s", 1)
	if _, _, err := w.store.CancelOrder(w.ctx, first.OrderID); err != nil {
		t.Fatal(err)
	}
	w.put(w.copyOf())
	w.check()
	w.run()
	for key, was := range map[string]admission.Decision{"k1": first, "k2": second} {
		if d := buy(key); d.Outcome != sale.Replayed || d.OrderID != was.OrderID {
			t.Errorf("replay of %s: %v %s, want order %s", key, d.Outcome, d.OrderID, was.OrderID)
		}
	}
	if d := buy("k3"); d.Outcome != sale.Accepted {
		t.Errorf("another request: %v", d.Outcome)
	}
	w.want("s", 3, 2, 0, 0, 0)
}

// Request keys are in Redis only: after it was emptied, a repeated purchase is decided as a new one. docs/operations.md
// describes what the buyer gets.
func TestRepeatedPurchaseAfterRedisWasEmptied(t *testing.T) {
	w := newWorld(t)
	w.create("one", 9, 1)
	w.create("two", 9, 2)
	repeat := func(saleID string) admission.Decision {
		t.Helper()
		d, err := w.admit.Admit(
			w.ctx, admission.Request{SaleID: saleID, Buyer: "ann", Key: saleID, KeyTTL: time.Hour, Fingerprint: "f"},
		)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	only, first := repeat("one"), repeat("two")
	if d := repeat("two"); d.Outcome != sale.Replayed || d.OrderID != first.OrderID {
		t.Fatalf("before: %v %s", d.Outcome, d.OrderID)
	}
	w.raw().FlushAll(w.ctx)
	w.check()
	w.run()
	w.want("two", 8, 1, 0, 0, 0)
	if d := repeat("one"); d.Outcome != sale.AlreadyBought || d.OrderID != only.OrderID {
		t.Errorf("a buyer with per_buyer orders: %v %s, want already bought %s", d.Outcome, d.OrderID, only.OrderID)
	}
	second := repeat("two")
	if second.Outcome != sale.Accepted || second.OrderID == first.OrderID {
		t.Errorf("a buyer with fewer: %v %s, want another order", second.Outcome, second.OrderID)
	}
	if d := repeat("two"); d.Outcome != sale.Replayed || d.OrderID != second.OrderID {
		t.Errorf("once more: %v %s, want a replay of %s", d.Outcome, d.OrderID, second.OrderID)
	}
	w.want("two", 7, 2, 0, 0, 0)
}
