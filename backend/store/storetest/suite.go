package storetest

import (
	"context"
	"errors"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Run checks a kind of order store. newURL returns the URL of a new database with all tables and no rows, bareURL of one without tables.
func Run(t *testing.T, newURL, bareURL func(testing.TB) string) {
	cases := []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"CreateSaleReadsBackAsWritten", createSale},
		{"CreateSaleRefusesTakenIDAndInvalidSale", createSaleRefuses},
		{"SetSwitchCountsVersionsAndClosedIsFinal", setSwitch},
		{"RestockOncePerRequestKey", restock},
		{"RestockConcurrentlyLosesNothing", restockConcurrently},
		{"ChangesAreInTheDeskLog", deskLog},
		{"TheDeskLogHasPagesAndFilters", deskLogPages},
		{"SalesHavePagesAndAreSearched", salesPage},

		{"WriteTwiceCountsOnce", writeTwice},
		{"WriteMixedBatchCountsOnlyNewOrders", writeMixed},
		{"WriteKeepsStrangeBuyers", writeStrangeBuyers},
		{"WriteSeveralSalesInOneBatch", writeSeveralSales},
		{"WriteRefusesMoreThanTheStock", writeOversell},
		{"WriteRefusesUnknownSale", writeUnknownSale},
		{"WriteRejectsSecondOrderForASlot", writeSecondOrderForOnePlace},
		{"WriteRefusesForeignOrderID", writeForeignOrderID},
		{"WriteRefusesWhatIsNoOrder", writeNoOrder},
		{"WriteLeavesCancelledOrderAlone", writeCancelled},
		{"WriteOverlappingBatchesConcurrently", writeOverlapping},
		{"WriteSalesInAnyOrderConcurrently", writeSalesInAnyOrder},
		{"WriteNeverOversellsConcurrently", writeRace},
		{"WriteCancelledAtAnyInstantIsAllOrNothing", writeInterrupted},

		{"WriteOfAnOlderGenerationIsRefused", writeStale},
		{"FencesGoUpWhateverIsForgotten", fences},
		{"CancelDeadOfAnOlderGenerationIsRefused", cancelDeadStale},
		{"GenerationIsABarrier", generationIsABarrier},
		{"ShardsAreClaimedOnce", shardsAreClaimedOnce},
		{"ShardsOfAnOlderDatabase", shardsOfAnOlderDatabase},
		{"WhySaleIsPaused", pauseReason},

		{"CancelDead", cancelDead},
		{"DropDead", dropDead},
		{"CancelDeadFreesThePlace", cancelDeadFreesPlace},
		{"CancelDeadAgainstWriteHasOneWinner", cancelDeadRace},
		{"CancelDeadAcceptsAnyReason", cancelDeadReason},
		{"OrderAndStatuses", orderAndStatuses},
		{"OrdersOfReadsEveryPage", ordersOf},
		{"CountIsOfOneInstant", count},

		{"DueAtFollowsTheSalesHold", dueAt},
		{"CancelOverdueCancelsWhatIsDueAndUnpaid", cancelOverdue},
		{"CancelOverdueConcurrentlyCancelsEachOnce", cancelOverdueConcurrently},
		{"CancelOrder", cancelOrder},
		{"CancelDeadAfterCancelGivesNothingBack", cancelDeadAfterCancel},
		{"ReturningUntilMarked", returning},
		{"RowsBySaleAndStatus", rows},
		{"PayOnceAndKeepWhatNobodyTook", pay},
		{"PayBeatsTheHold", payBeatsTheHold},
		{"PayAgainstCancelHasOneWinner", payRace},
		{"SettleRefund", settleRefund},

		{"ChangesWakeWhoeverTellsThem", changesWake},
		{"RehearsalIsRemovedWithItsOrders", removeRehearsal},

		{"OrdersOfABuyer", ordersOfBuyer},

		{"OpenedByTwoAtOnce", openTwice},
		{"KeptWhenReopened", reopen},
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

// env is one test's store.
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

// wantRows checks that the sale has n orders and has counted each of them once.
func (e *env) wantRows(t *testing.T, saleID string, n int64) {
	t.Helper()
	c, err := e.Count(e.ctx, saleID, store.Always, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows != n || c.Sold != n {
		t.Fatalf("sale %s has %d rows and counts %d as sold, want %d of both", saleID, c.Rows, c.Sold, n)
	}
}
