package queue

import (
	"cmp"
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode"

	"sluice/backend/redis/keyspace"
)

// Register returns a new consumer. The consumer is named after name and a number that Redis assigns. name must be
// unique over all calls of all processes, because a Redis that has lost data may assign a number again. A name consists
// of characters that are safe in a Redis key (NewConsumerName). A rebuild that takes the data over for another
// deployment removes all consumers, and those of the former owner cannot register again. No worker therefore stores
// orders of another deployment in its database.
func (l *List) Register(ctx context.Context, name string) (Consumer, error) {
	keys := []string{l.shard.Consumers(), l.shard.Guard()}
	number, err := l.run(ctx, "register_consumer", keys, name, maxConsumers, l.cfg.Deployment()).Int64()
	return Consumer(name + "-" + strconv.FormatInt(number, 10)), wrap("register", err)
}

// TakeAs acknowledges batch ack and leases up to limit of the next messages as batch id, in one atomic step. An empty
// ack acknowledges nothing. id is a BatchID of a consumer, larger than those of its earlier batches. The returned batch
// is empty if no message is ready.
//
// After an error the call may have been executed. Repeat it with the same id: an executed call returns the same
// messages. An id is leased once: a delayed call that Redis executes after the batch has ended returns no messages.
// lost reports that batch ack was not leased: its lease expired, or an earlier call with a lost reply acknowledged it.
// Errors: ErrUnregistered; nothing has changed then.
//
// If no message is ready, TakeAs requeues expired leases and tries again. Texts that are not messages become dead
// letters; the batch is empty if it held nothing else, although messages may be ready.
func (l *List) TakeAs(ctx context.Context, id string, limit int, ack string) (b Batch, lost bool, err error) {
	limit = min(max(limit, 1), MaxBatch)
	reclaimed := false
	for {
		texts, wasLost, err := l.lease(ctx, id, limit, ack)
		if err != nil {
			return Batch{}, false, wrap("take", err)
		}
		lost, ack = lost || wasLost, ""
		if len(texts) > 0 {
			messages, err := l.decode(ctx, id, texts)
			if err != nil {
				return Batch{}, false, wrap("take", err)
			}
			if len(messages) == 0 { // all texts were invalid: they are dead letters now, and the batch has ended
				return Batch{}, lost, nil
			}
			return Batch{ID: id, Messages: messages}, lost, nil
		}
		if reclaimed {
			return Batch{}, lost, nil
		}
		reclaimed = true
		if n, _ := l.Reclaim(ctx, reclaimOnTake); n == 0 { // after an error, the next take reclaims
			return Batch{}, lost, nil
		}
	}
}

// reclaimOnTake is the maximum number of expired leases that an idle take requeues.
const reclaimOnTake = 10

func (l *List) lease(ctx context.Context, id string, limit int, ack string) (texts []string, lost bool, err error) {
	into := "list"
	if l.cfg.Stream {
		into = "stream"
	}
	keys := []string{
		l.shard.Ready(), l.shard.Delayed(), l.shard.Leases(), l.shard.Wake(), l.shard.Batch(id),
		l.shard.Batch(cmp.Or(ack, id)), l.shard.Attempts(), l.shard.Crashes(), l.shard.Guard(), l.shard.Orders(),
		l.shard.Consumers(),
	}
	args := []any{limit, l.cfg.Lease.Milliseconds(), id, ack, l.cfg.MaxCrashes, into}
	answer, err := l.run(ctx, "take", keys, args...).StringSlice()
	if err != nil {
		return nil, false, err
	}
	last := len(answer) - 1
	if answer[last] == "unregistered" {
		return nil, false, ErrUnregistered
	}
	return answer[:last], answer[last] == "lost", nil
}

func (l *List) decode(ctx context.Context, id string, texts []string) ([]Message, error) {
	messages := make([]Message, 0, len(texts))
	var invalid []any
	for _, text := range texts {
		m, err := keyspace.DecodeMessage(text)
		if err != nil {
			invalid = append(invalid, text, base64.StdEncoding.EncodeToString([]byte(text)))
			continue
		}
		messages = append(messages, m)
	}
	if len(invalid) == 0 {
		return messages, nil
	}
	keys := []string{
		l.shard.Leases(), l.shard.Batch(id), l.shard.Dead().Times(), l.shard.Dead().Letters(),
		l.shard.Guard(), l.shard.Orders(), l.shard.Dead().Index(),
	}
	args := append([]any{id, "not a queue message"}, invalid...)
	left, err := l.run(ctx, "dead_letter", keys, args...).Int()
	if err != nil {
		return nil, err
	}
	if left < 0 {
		return nil, nil // the lease expired in the meantime
	}
	return messages, nil
}

// Ack ends a lease. Messages in failures are delayed or become dead letters, all others are removed. Failures of other
// batches' messages are ignored. lost reports that the batch was no longer leased; nothing has changed then.
func (l *List) Ack(ctx context.Context, batchID string, failures ...Failure) (lost bool, err error) {
	keys := []string{
		l.shard.Leases(), l.shard.Batch(batchID), l.shard.Attempts(), l.shard.Crashes(), l.shard.Delayed(),
		l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Guard(), l.shard.Orders(), l.shard.Dead().Index(),
	}
	args := []any{batchID, l.cfg.MaxAttempts, l.cfg.BackoffBase.Milliseconds(), l.cfg.BackoffCap.Milliseconds()}
	for _, f := range failures {
		args = append(args, f.ID.String(), f.Permanent, int64(l.cfg.Jitter()*1e6), cleanReason(f.Reason))
	}
	n, err := l.run(ctx, "ack", keys, args...).Int()
	return err == nil && n == 0, wrap("ack", err)
}

// cleanReason returns s as one line of valid UTF-8 of at most MaxReason bytes.
func cleanReason(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), 4*MaxReason)], "?")
	words := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	s = strings.Join(words, " ")
	return cmp.Or(strings.ToValidUTF8(s[:min(len(s), MaxReason)], ""), "no reason given")
}

// Release requeues the messages of a batch at the front without counting a failure. lost is as for Ack.
func (l *List) Release(ctx context.Context, batchID string) (lost bool, err error) {
	keys := []string{
		l.shard.Leases(), l.shard.Batch(batchID), l.shard.Ready(), l.shard.Wake(), l.shard.Guard(), l.shard.Orders(),
	}
	n, err := l.run(ctx, "release", keys, batchID).Int()
	return err == nil && n == 0, wrap("release", err)
}

// Extend starts the lease again from now. lost reports that the batch was no longer leased: the worker must stop
// writing it.
func (l *List) Extend(ctx context.Context, batchID string) (lost bool, err error) {
	n, err := l.run(ctx, "extend_lease", []string{l.shard.Leases()}, batchID, l.cfg.Lease.Milliseconds()).Int()
	return err == nil && n == 0, wrap("extend", err)
}
