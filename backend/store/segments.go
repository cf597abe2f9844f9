package store

import (
	"context"
	"fmt"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Allocations returns the allocations of a sale by segment, as of one instant; none for a sale in one shard. They add
// up to its stock. It returns sale.ErrNotFound for an unknown sale.
func (s *Store) Allocations(ctx context.Context, saleID string) ([]spread.Allocation, error) {
	op := "store: allocations of sale " + saleID
	return Value(ctx, s.View, op, func(ctx context.Context, c Conn) ([]spread.Allocation, error) {
		all, err := Select(ctx, c, scanAllocation, allocations, saleID)
		if err == nil && len(all) == 0 {
			_, err = readSale(ctx, c, saleID, "")
		}
		return all, err
	})
}

const allocations = "SELECT units, version FROM segments WHERE sale_id = $1 ORDER BY segment"

func scanAllocation(row Scanner) (a spread.Allocation, err error) {
	err = row.Scan(&a.Units, &a.Version)
	return a, err
}

// Commit moves the units of a transfer between two allocations if the version of From is still that of the transfer.
// Otherwise it changes nothing. It returns the allocations after the call: see spread.Ledger.
func (s *Store) Commit(ctx context.Context, saleID string, t spread.Transfer) ([]spread.Allocation, error) {
	op := fmt.Sprintf("store: move %d units of sale %s", t.Units, saleID)
	if t.Units < 1 || t.From == t.To {
		return nil, fmt.Errorf("%s from segment %d to %d: not a transfer", op, t.From, t.To)
	}
	return Value(ctx, s.Update, op, func(ctx context.Context, c Conn) ([]spread.Allocation, error) {
		// Both rows are locked in the order of their segments, so that concurrent transfers cannot deadlock.
		const lock = "SELECT segment, version FROM segments WHERE sale_id = $1 AND segment IN ($2, $3) ORDER BY segment"
		versions, err := SelectMap[int, int64](ctx, c, lock+c.Dialect().ForUpdate, saleID, t.From, t.To)
		if err != nil {
			return nil, err
		}
		if len(versions) != 2 {
			return nil, fmt.Errorf("segment %d or %d: %w", t.From, t.To, sale.ErrNotFound)
		}
		if versions[t.From] == t.Version {
			if _, err := c.Exec(ctx, addUnits, saleID, t.From, -t.Units); err != nil {
				return nil, err
			}
			if _, err := c.Exec(ctx, addUnits, saleID, t.To, t.Units); err != nil {
				return nil, err
			}
		}
		return Select(ctx, c, scanAllocation, allocations, saleID)
	})
}

const addUnits = "UPDATE segments SET units = units + $3, version = version + 1 WHERE sale_id = $1 AND segment = $2"

// Claim raises the version of an allocation and returns the allocation, with which the segment is then loaded into
// Redis. A transfer that the segment began before Claim has an older version and cannot be committed any more. It
// returns sale.ErrNotFound for an unknown segment.
func (s *Store) Claim(ctx context.Context, saleID string, segment int) (spread.Allocation, error) {
	op := fmt.Sprintf("store: claim segment %d of sale %s", segment, saleID)
	return Value(ctx, s.Update, op, func(ctx context.Context, c Conn) (spread.Allocation, error) {
		return GetRow(ctx, c, scanAllocation, addUnits+" RETURNING units, version", saleID, segment, 0)
	})
}

// RecoverAllocations replaces the allocations of a sale by those of spread.Recover if Redis has applied newer ones, as
// after a restore of the database from a backup. applied has the state of each segment in Redis. It returns
// sale.ErrNotFound for an unknown sale.
func (s *Store) RecoverAllocations(ctx context.Context, saleID string, applied []spread.State) error {
	return s.Update(ctx, "store: recover allocations of sale "+saleID, func(ctx context.Context, c Conn) error {
		found, err := readSale(ctx, c, saleID, c.Dialect().ForUpdate)
		if err != nil {
			return err
		}
		inSQL, err := Select(ctx, c, scanAllocation, allocations+c.Dialect().ForUpdate, saleID)
		if err == nil && len(inSQL) != len(applied) {
			err = fmt.Errorf("it has %d segments, not %d: %w", len(inSQL), len(applied), sale.ErrConflict)
		}
		if err != nil {
			return err
		}
		const update = "UPDATE segments SET units = $3, version = $4 WHERE sale_id = $1 AND segment = $2"
		for i, a := range spread.Recover(found.Stock, inSQL, applied) {
			if a == inSQL[i] {
				continue
			}
			if _, err := c.Exec(ctx, update, saleID, i, a.Units, a.Version); err != nil {
				return err
			}
		}
		return nil
	})
}

// createSegments divides the stock of a new sale over its segments.
func createSegments(ctx context.Context, c Conn, n sale.Sale) error {
	if n.Spread < 2 {
		return nil
	}
	for i, units := range spread.Divide(n.Stock, n.Spread, 0) {
		const insert = "INSERT INTO segments (sale_id, segment, units, version) VALUES ($1, $2, $3, 1)"
		if _, err := c.Exec(ctx, insert, n.ID, i, units); err != nil {
			return err
		}
	}
	return nil
}

// restockSegments divides new units of a sale over its segments, in the order of the segments. now has its new version.
func restockSegments(ctx context.Context, c Conn, now *sale.Sale, add int64) error {
	if now.Spread < 2 {
		return nil
	}
	for i, units := range spread.Divide(add, now.Spread, now.Version) {
		if units == 0 {
			continue
		}
		if _, err := c.Exec(ctx, addUnits, now.ID, i, units); err != nil {
			return err
		}
	}
	return nil
}
