package storetest

import (
	"context"
	"errors"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Run is the conformance suite of package store. newURL returns the URL of a new database with empty tables, bareURL of
// one without tables.
func Run(t *testing.T, newURL, bareURL func(testing.TB) string) {
	cases := []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"CreateSaleReadsBackAsWritten", createSale},
		{"CreateSaleRejectsUsedIDAndInvalidSale", createSaleRejects},
		{"SetSwitchIncrementsVersionAndClosedIsFinal", setSwitch},
		{"RestockOncePerRequestKey", restock},
		{"RestockConcurrentlyLosesNothing", restockConcurrently},
		{"ChangesAreInTheAdminLog", adminLog},
		{"LogHasPagesAndFilters", adminLogPages},
		{"SalesPageFiltersAndPages", salesPage},

		{"WriteTwiceCountsOnce", writeTwice},
		{"WriteMixedBatchCountsOnlyNewOrders", writeMixed},
		{"WriteKeepsUnusualBuyers", writeUnusualBuyers},
		{"WriteSeveralSalesInOneBatch", writeSeveralSales},
		{"WriteRejectsMoreThanTheStock", writeOversell},
		{"WriteRejectsUnknownSale", writeUnknownSale},
		{"WriteRejectsSecondOrderForASlot", writeSecondOrderForSlot},
		{"WriteRejectsUsedOrderID", writeForeignOrderID},
		{"WriteRejectsInvalidOrder", writeInvalidOrder},
		{"WriteKeepsCancelledOrder", writeCancelled},
		{"WriteOverlappingBatchesConcurrently", writeOverlapping},
		{"WriteSalesInAnyOrderConcurrently", writeSalesInAnyOrder},
		{"WriteNeverOversellsConcurrently", writeRace},
		{"WriteInterruptedIsAllOrNothing", writeInterrupted},

		{"WriteRejectsOlderGeneration", writeStale},
		{"FencesAreUnique", fences},
		{"CancelDeadRejectsOlderGeneration", cancelDeadStale},
		{"BeginGenerationEndsOlderWrites", generationIsABarrier},
		{"ClaimShardsKeepsTheFirstNumber", shardsAreClaimedOnce},
		{"ClaimShardsOfOlderDatabase", shardsOfAnOlderDatabase},
		{"LastLogReturnsReasonOfPause", pauseReason},

		{"CancelDeadInsertsCancelledRow", cancelDead},
		{"DropDeadIsLogged", dropDead},
		{"CancelDeadFreesTheSlot", cancelDeadFreesSlot},
		{"CancelDeadAgainstWriteHasOneWinner", cancelDeadRace},
		{"CancelDeadAcceptsAnyReason", cancelDeadReason},
		{"OrderAndStatusesReadRows", orderAndStatuses},
		{"OrdersOfReadsEveryPage", ordersOf},
		{"CountReadsOneInstant", count},

		{"DueAtFollowsTheSalesHold", dueAt},
		{"CancelOverdueCancelsUnpaidOrders", cancelOverdue},
		{"CancelOverdueConcurrentlyCancelsEachOnce", cancelOverdueConcurrently},
		{"CancelOrderIsIdempotent", cancelOrder},
		{"CancelDeadAfterCancelReturnsNoUnit", cancelDeadAfterCancel},
		{"ReturningUntilMarked", returning},
		{"OrderRowsFiltersAndPages", rows},
		{"PayOnceAndRecordRefunds", pay},
		{"PayAfterHoldBeforeCancel", payBeatsTheHold},
		{"PayAgainstCancelHasOneWinner", payRace},
		{"SettleRefundOnce", settleRefund},

		{"OnChangeIsCalledAfterEachChange", onChange},
		{"RehearsalIsRemovedWithItsOrders", removeRehearsal},

		{"OrdersOfBuyerReturnsNewest", ordersOfBuyer},

		{"OpenConcurrently", openTwice},
		{"ReopenKeepsData", reopen},
		{"AgreesWithModel", model},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := newURL(t)
			c.test(t, &env{Store: Open(t, databaseURL), url: databaseURL, bareURL: bareURL, ctx: context.Background()})
		})
	}
}

// env is the database of one test.
type env struct {
	*Store
	url     string
	bareURL func(testing.TB) string
	ctx     context.Context
}

func (e *env) create(t *testing.T, id string, stock int64) sale.Sale {
	t.Helper()
	s, err := e.CreateSale(e.ctx, Sale(id, stock))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *env) write(t *testing.T, orders ...sale.Order) {
	t.Helper()
	if err := e.Write(e.ctx, orders); err != nil {
		t.Fatal(err)
	}
}

func (e *env) wantRejected(t *testing.T, what string, orders ...sale.Order) {
	t.Helper()
	if err := e.Write(e.ctx, orders); !errors.Is(err, store.ErrRejected) || errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("%s: got %v, want ErrRejected", what, err)
	}
}

// wantRows checks that the sale has n orders and counts n units as sold.
func (e *env) wantRows(t *testing.T, saleID string, n int64) {
	t.Helper()
	c, err := e.Count(e.ctx, saleID, store.Always, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows != n || c.Sold != n {
		t.Fatalf("sale %s has %d rows and %d sold units, want %d of both", saleID, c.Rows, c.Sold, n)
	}
}
