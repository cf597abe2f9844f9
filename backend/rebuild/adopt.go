package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// errFenced tells that a later rebuild has begun, or that Redis was emptied: what this one does is refused.
var errFenced = fmt.Errorf("another rebuild has begun: %w", sale.ErrUnavailable)

// Adopted counts what became of orders that Redis may have lost.
type Adopted struct {
	Settled  int // rows already
	Known    int // Redis has them
	Again    int // have their unit and their message again
	Unbacked int // dead letters, since their unit or their place was gone
}

type statuses interface {
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

// Adopter gives accepted orders back to a Redis that may have lost them. It is safe for concurrent use.
type Adopter struct {
	client redis.UniversalClient
	space  keyspace.Space
	rows   statuses
	script *redis.Script
}

// NewAdopter makes an Adopter. The client need not be guarded: what is done at another generation is refused.
func NewAdopter(client redis.UniversalClient, space keyspace.Space, rows statuses) *Adopter {
	return &Adopter{client: client, space: space, rows: rows, script: redisscript.Load("adopt")}
}

// adoptChunk bounds the time that Redis spends on one run of the script.
const adoptChunk = 200

// Adopt makes sure that each of these accepted orders is a row, or known to the Redis of this fence. It may be repeated, and no order gets a second unit.
// Orders of a sale that SQL does not have either are left out. An error wraps sale.ErrUnavailable.
func (a *Adopter) Adopt(ctx context.Context, fence int64, orders []sale.Order) (Adopted, error) {
	var done Adopted
	for part := range slices.Chunk(orders, 5000) {
		ids := make([]sale.OrderID, len(part))
		for i, o := range part {
			ids[i] = o.ID
		}
		rows, err := a.rows.Statuses(ctx, ids)
		if err != nil {
			return done, fmt.Errorf("adopt: %w", err)
		}
		bySale := map[string][]sale.Order{}
		for _, o := range part {
			if _, isRow := rows[o.ID]; isRow {
				done.Settled++
			} else {
				bySale[o.SaleID] = append(bySale[o.SaleID], o)
			}
		}
		for _, saleID := range slices.Sorted(maps.Keys(bySale)) {
			for chunk := range slices.Chunk(bySale[saleID], adoptChunk) {
				if err := a.adopt(ctx, fence, saleID, chunk, &done); err != nil {
					return done, fmt.Errorf("adopt: %w", err)
				}
			}
		}
	}
	return done, nil
}

func (a *Adopter) adopt(ctx context.Context, fence int64, saleID string, orders []sale.Order, done *Adopted) error {
	lane := a.space.LaneOf(saleID)
	keys := []string{
		lane.Epoch(), lane.Sale(saleID), lane.Stock(saleID), lane.Buyers(saleID), lane.Ready(), lane.Wake(), lane.Dead(), lane.DeadLetters(),
	}
	args := []any{fence, saleID}
	for _, o := range orders {
		args = append(args, o.ID.String(), o.Buyer)
	}
	answer, err := a.script.Run(ctx, a.client, keys, args...).Text()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", sale.ErrUnavailable, err)
	case answer == "fenced":
		return errFenced
	case answer == "unknown_sale":
		return nil // every sale of SQL is in place before anything is adopted
	case len(answer) != len(orders):
		return errors.New("the script answered " + answer)
	}
	for _, letter := range answer {
		switch letter {
		case 'k':
			done.Known++
		case 'a':
			done.Again++
		case 'u':
			done.Unbacked++
		}
	}
	return nil
}
