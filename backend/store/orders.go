package store

import (
	"context"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

const orderColumns = "id, sale_id, buyer, slot, serial, status, due_at, " +
	"coalesce(cancelled_by = '" + ActorHold + "', false)"

func scanOrder(row Scanner) (o sale.Order, err error) {
	err = row.Scan(&o.ID, &o.SaleID, &o.Buyer, &o.Slot, &o.Serial, &o.Status, Time(&o.DueAt), &o.Expired)
	return o, err
}

func idsOf(orders []sale.Order) []sale.OrderID {
	ids := make([]sale.OrderID, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	return ids
}

func int64s(ids []sale.OrderID) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// Order returns an order, or sale.ErrNotFound if it is not a row.
func (s *Store) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	return ViewRow(ctx, s.DB, "store: order "+id.String(), scanOrder,
		"SELECT "+orderColumns+" FROM orders WHERE id = $1", int64(id))
}

// OrdersByID returns those orders that are rows.
func (s *Store) OrdersByID(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	const op = "store: orders by id"
	return Value(ctx, s.View, op, func(ctx context.Context, c Conn) (map[sale.OrderID]sale.Order, error) {
		return readOrders(ctx, c, ids)
	})
}

func readOrders(ctx context.Context, c Conn, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	orders := make(map[sale.OrderID]sale.Order, len(ids))
	return orders, c.Query(ctx, func(row Scanner) error {
		o, err := scanOrder(row)
		orders[o.ID] = o
		return err
	}, "SELECT "+orderColumns+" FROM orders WHERE id "+c.Dialect().In("$1"), int64s(ids))
}

// OrdersInSale returns a buyer's rows in a sale, by id: all orders that are not cancelled, and up to limit of the
// newest cancelled ones.
func (s *Store) OrdersInSale(ctx context.Context, buyer, saleID string, limit int) ([]sale.Order, error) {
	return ViewRows(ctx, s.DB, "store: orders of a buyer in sale "+saleID, scanOrder, `SELECT * FROM (
		SELECT `+orderColumns+` FROM orders WHERE buyer = $1 AND sale_id = $2 AND status <> 'cancelled'
		UNION ALL
		SELECT * FROM (
			SELECT `+orderColumns+` FROM orders WHERE buyer = $1 AND sale_id = $2 AND status = 'cancelled'
				ORDER BY id DESC LIMIT $3
		) AS cancelled
	) AS either ORDER BY id`, buyer, saleID, limit)
}

// Statuses returns the statuses of those orders that are rows.
func (s *Store) Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return Value(ctx, s.View, "store: statuses", func(ctx context.Context, c Conn) (map[sale.OrderID]sale.Status, error) {
		return SelectMap[sale.OrderID, sale.Status](ctx, c,
			"SELECT id, status FROM orders WHERE id "+c.Dialect().In("$1"), int64s(ids))
	})
}

// Recorded returns the statuses of those orders that SQL has a record of: the rows, and as cancelled the orders that
// DropDead has dropped.
func (s *Store) Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	statuses, err := s.Statuses(ctx, ids)
	if err != nil {
		return nil, err
	}
	var targets []string // of log entries
	for _, id := range ids {
		if _, isRow := statuses[id]; !isRow {
			targets = append(targets, id.String())
		}
	}
	if len(targets) == 0 {
		return statuses, nil
	}
	dropped, err := ViewRows(ctx, s.DB, "store: dropped orders", Column[string],
		"SELECT target FROM admin_log WHERE action = '"+DroppedDead+"' AND target "+s.Dialect().In("$1"), targets)
	for _, target := range dropped {
		if id, err := sale.ParseOrderID(target); err == nil {
			statuses[id] = sale.StatusCancelled
		}
	}
	return statuses, err
}

// orderPage is how many orders OrdersOf reads at a time.
const orderPage = 5000

// OrdersOf calls yield for every order of a part of a sale that holds a unit, by serial, and then for each cancelled
// order whose unit is not back in Redis yet. The orders are read in pages, each with its own timeout and none in a
// transaction, so a sale of millions of orders needs little memory. Orders written meanwhile may be missing, and an
// order cancelled meanwhile may appear twice. An error of yield ends the iteration and is returned unchanged. An
// unknown sale has no orders.
func (s *Store) OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
	op := "store: orders of sale " + of.SaleID
	first, end := of.Serials()
	// The cancelled orders are read last, so that an order which is cancelled during the iteration is not missed.
	for _, returning := range []bool{false, true} {
		rest := "status <> 'cancelled' AND serial >= $3 AND (serial, id) > ($3, $4) ORDER BY serial, id LIMIT $5"
		if returning { // by id, which has an index of these orders
			rest = isReturning + " AND serial >= $3 AND id > $4 ORDER BY id LIMIT $5"
		}
		for last, more := (sale.Order{Serial: first}), true; more; {
			page, err := ViewRows(ctx, s.DB, op, scanOrder, "SELECT "+orderColumns+" FROM orders WHERE sale_id = $1"+
				" AND serial <= $2 AND "+rest, of.SaleID, end, last.Serial, int64(last.ID), orderPage)
			if err != nil {
				return err
			}
			for _, o := range page {
				if err := yield(o); err != nil {
					return err
				}
				if last.ID = o.ID; !returning {
					last.Serial = o.Serial
				}
			}
			more = len(page) == orderPage
		}
	}
	return nil
}

// recentSales is the number of sales in which OrdersOfBuyer looks for orders that are not cancelled. Each costs one
// index lookup.
const recentSales = 500

// OrdersOfBuyer returns up to limit of a buyer's newest orders, oldest first. Orders that are not cancelled are found
// in the 500 newest sales only, because no index lists all orders by buyer: it would slow down every Write.
func (s *Store) OrdersOfBuyer(ctx context.Context, buyer string, limit int) ([]sale.Order, error) {
	return ViewRows(ctx, s.DB, "store: orders of a buyer", scanOrder, `SELECT * FROM (
		SELECT * FROM (
			SELECT `+orderColumns+` FROM (SELECT id AS recent FROM sales ORDER BY created_at DESC LIMIT $3) AS sales
				JOIN orders ON sale_id = recent AND buyer = $1 AND status <> 'cancelled'
			UNION ALL
			SELECT * FROM (
				SELECT `+orderColumns+` FROM orders WHERE buyer = $1 AND status = 'cancelled' ORDER BY id DESC LIMIT $2
			) AS cancelled
		) AS either ORDER BY id DESC LIMIT $2
	) AS newest ORDER BY id`, buyer, limit, recentSales)
}
