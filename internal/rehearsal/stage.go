package rehearsal

import (
	"context"
	"time"

	"sluice/client"
)

// Sale is what a rehearsal needs to know of a sale, and what its report tells.
type Sale struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Stock    int64  `json:"stock"`
	PerBuyer int64  `json:"per_buyer"`
}

// queued is how many orders are on their way.
func queued(a client.Audit) int64 { return a.Ready + a.Delayed + a.Leased }

// Stage is the operator's side of a rehearsal: the copy, and what fails. Implementations call the operator's API.
type Stage interface {
	Make(ctx context.Context, saleID string, stock int64, opens, closes time.Time) (Sale, error)
	PauseRedis(ctx context.Context, id string, span time.Duration) error
	WorkerDies(ctx context.Context, id string) (orders int, err error)
	Remove(ctx context.Context, id string) (orders int64, gone bool, err error) // gone is false, without an error, while orders are on their way
}

// Books are what became of the orders.
type Books interface {
	Audit(ctx context.Context, id string) (client.Audit, error)
	Rows(ctx context.Context, id string, yield func(order, buyer string, cancelled bool)) error
	Dead(ctx context.Context, id string, yield func(order string)) error
}
