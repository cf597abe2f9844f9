package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"sluice/backend/redis/redisconn"
)

// Books holds the contents of both stores, read key by key and table by table.
type Books struct {
	Sales   map[string]Shelf
	Rows    []Row
	Letters []Letter
	Queue   []string           // messages in a list, a lease or delayed: "<key> at <server>: <text>"
	Holders map[Place][]string // the buyers hash: the orders that a buyer holds
	Journal map[string]Place   // order id -> buyer and sale
	Paused  []string           // sales that the audit or a rebuild has paused, with the reason
	Moving  []string           // segments that have units in transfer, or have not applied their allocation in SQL
	Divided []string           // buyers with orders in two segments of a sale
	Audits  map[string]bool    // whether the program's own audit balances
}

// Shelf is the state of one sale.
type Shelf struct {
	Stock, Sold int64 // in SQL
	Spread      int   // in SQL
	Left        int64 // in Redis, with the units that are between two segments
}

// Row is an order in SQL.
type Row struct {
	ID        string
	Place     Place
	Cancelled bool
	Returning bool // cancelled, and its unit has not returned yet
}

// Letter is a dead letter.
type Letter struct {
	ID       string
	Place    Place
	Unbacked bool // it holds no unit
}

// readBooks reads both stores and the journals in the given directories. Nothing may change in the meantime. The keys
// of all Redis servers together are one store.
func readBooks(ctx context.Context, servers []redisconn.Client, db *pgx.Conn, journals []string) (*Books, error) {
	b := &Books{
		Sales:   map[string]Shelf{},
		Holders: map[Place][]string{},
		Journal: map[string]Place{},
		Audits:  map[string]bool{},
	}
	for _, read := range []func() error{
		func() error { return b.readSQL(ctx, db) },
		func() error { return b.readSales(ctx, db, servers) },
		func() error { return b.readQueue(ctx, servers) },
		func() error { return b.readJournals(journals) },
	} {
		if err := read(); err != nil {
			return nil, fmt.Errorf("chaos: read the books: %w", err)
		}
	}
	return b, nil
}

func (b *Books) readSQL(ctx context.Context, db *pgx.Conn) error {
	var id string
	var shelf Shelf
	if err := eachRow(ctx, db, "SELECT id, stock, sold, spread FROM sales",
		func() { b.Sales[id] = shelf }, &id, &shelf.Stock, &shelf.Sold, &shelf.Spread); err != nil {
		return err
	}
	var r Row
	if err := eachRow(ctx, db, "SELECT id::text, sale_id, buyer, status = 'cancelled', "+
		"status = 'cancelled' AND return_number IS NULL FROM orders",
		func() { b.Rows = append(b.Rows, r) },
		&r.ID, &r.Place.Sale, &r.Place.Buyer, &r.Cancelled, &r.Returning); err != nil {
		return err
	}
	var line string
	return eachRow(ctx, db,
		"SELECT concat_ws(' ', at, actor, action, target, detail) FROM admin_log WHERE actor IN ('audit', 'rebuild')",
		func() { b.Paused = append(b.Paused, line) }, &line)
}

// eachRow scans each row of a query into the same variables and calls note.
func eachRow(ctx context.Context, db *pgx.Conn, sql string, note func(), into ...any) error {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error { note(); return nil })
	return err
}

// Keys contain the hash tag of their shard, sluice:{0}:..., so the patterns match any shard.
func scan(
	ctx context.Context,
	servers []redisconn.Client,
	pattern string,
	each func(redisconn.Client, string) error,
) error {
	for _, rdb := range servers {
		found := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for found.Next(ctx) {
			if err := each(rdb, found.Val()); err != nil {
				return err
			}
		}
		if err := found.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Books) readSales(ctx context.Context, db *pgx.Conn, servers []redisconn.Client) error {
	versions, err := readVersions(ctx, db)
	if err != nil {
		return err
	}
	for id := range b.Sales {
		found := 0
		if err := scan(ctx, servers, "sluice:{*}:sale:"+id+":stock", func(rdb redisconn.Client, key string) error {
			found++
			return b.readStock(ctx, rdb, id, key, versions)
		}); err != nil {
			return err
		}
		if want := b.Sales[id].Spread; found != want {
			return fmt.Errorf("sale %s is in Redis %d times, want %d", id, found, want)
		}
		segmentOf := map[Place]string{}
		if err := scan(ctx, servers, "sluice:{*}:sale:"+id+":buyers", func(rdb redisconn.Client, key string) error {
			return b.readHolders(ctx, rdb, id, key, segmentOf)
		}); err != nil {
			return err
		}
	}
	return nil
}

// readVersions reads the versions of the allocations of all segments, by "<sale> <segment>".
func readVersions(ctx context.Context, db *pgx.Conn) (map[string]string, error) {
	versions := map[string]string{}
	var segment, version string
	err := eachRow(ctx, db, "SELECT sale_id || ' ' || segment, version::text FROM segments",
		func() { versions[segment] = version }, &segment, &version)
	return versions, err
}

// readStock reads the units that one shard has left of a sale; key is that of its stock.
func (b *Books) readStock(
	ctx context.Context, rdb redisconn.Client, id, key string, versions map[string]string,
) error {
	left, err := rdb.Get(ctx, key).Int64()
	if err != nil {
		return err
	}
	shelf := b.Sales[id]
	shelf.Left += left
	if shelf.Spread > 1 {
		f, err := rdb.HGetAll(ctx, strings.TrimSuffix(key, ":stock")).Result()
		if err != nil {
			return err
		}
		index, _, _ := strings.Cut(f["segment"], "/")
		if f["out"] != "" || f["allocation"] != versions[id+" "+index] {
			b.Moving = append(b.Moving, fmt.Sprintf("segment %s of %s: in transfer %q, version %q, in SQL %q",
				index, id, f["out"], f["allocation"], versions[id+" "+index]))
		}
	}
	b.Sales[id] = shelf
	return nil
}

func (b *Books) readHolders(
	ctx context.Context, rdb redisconn.Client, id, key string, segmentOf map[Place]string,
) error {
	held := rdb.HScan(ctx, key, 0, "", 5000).Iterator()
	for held.Next(ctx) {
		p := Place{id, held.Val()}
		if !held.Next(ctx) {
			break
		}
		if before, ok := segmentOf[p]; ok && before != key {
			b.Divided = append(b.Divided, fmt.Sprintf("%s has orders in %s and %s", p.Buyer, before, key))
		}
		segmentOf[p] = key
		b.Holders[p] = ordersHeld(held.Val()) // HSCAN may return a field twice while the hash grows
	}
	return held.Err()
}

// ordersHeld returns the orders of a field of the buyers hash: "<order>:<request>,<order>", then ";" and requests of
// returned orders.
func ordersHeld(text string) (orders []string) {
	slots, _, _ := strings.Cut(text, ";")
	for slot := range strings.SplitSeq(slots, ",") {
		if order, _, _ := strings.Cut(slot, ":"); order != "" {
			orders = append(orders, order)
		}
	}
	return orders
}

func (b *Books) readQueue(ctx context.Context, servers []redisconn.Client) error {
	add := func(rdb redisconn.Client, key string, texts []string) {
		for _, text := range texts {
			b.Queue = append(b.Queue, fmt.Sprintf("%s at %s: %s", key, redisconn.Addr(rdb), text))
		}
	}
	list := func(rdb redisconn.Client, key string) error {
		texts, err := rdb.LRange(ctx, key, 0, -1).Result()
		add(rdb, key, texts)
		return err
	}
	for _, pattern := range []string{"sluice:{*}:ready", "sluice:{*}:batch:*"} {
		if err := scan(ctx, servers, pattern, list); err != nil {
			return err
		}
	}
	if err := scan(ctx, servers, "sluice:{*}:delayed", func(rdb redisconn.Client, key string) error {
		texts, err := rdb.ZRange(ctx, key, 0, -1).Result()
		add(rdb, key, texts)
		return err
	}); err != nil {
		return err
	}
	return scan(ctx, servers, "sluice:{*}:dead:letters", func(rdb redisconn.Client, key string) error {
		letters, err := rdb.HGetAll(ctx, key).Result()
		for id, text := range letters {
			var letter struct{ Message, Unit string }
			if err := json.Unmarshal([]byte(text), &letter); err != nil {
				return fmt.Errorf("dead letter %s: %w", id, err)
			}
			place, _ := placeOf(letter.Message, 4)
			b.Letters = append(b.Letters, Letter{ID: id, Place: place, Unbacked: letter.Unit == "none"})
		}
		return err
	})
}

// placeOf returns the buyer and sale of a message: its second word is the sale, and the buyer follows after words
// words.
func placeOf(message string, words int) (p Place, orderID string) {
	f := strings.SplitN(message, " ", words+1)
	if len(f) <= words {
		return Place{}, ""
	}
	return Place{f[1], f[words]}, f[0]
}

// readJournals reads the lines "<checksum> <order id> <sale> <buyer>" of the journals of all shards that still exist.
func (b *Books) readJournals(directories []string) error {
	for _, directory := range directories {
		for _, pattern := range []string{"*.journal", "shard-*/*.journal"} {
			files, err := filepath.Glob(filepath.Join(directory, pattern))
			if err != nil {
				return err
			}
			for _, name := range files {
				if err := b.readJournal(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *Books) readJournal(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		_, line, _ := strings.Cut(lines.Text(), " ")
		p, id := placeOf(line, 2)
		if _, err := strconv.ParseInt(id, 10, 64); err == nil { // otherwise the line is incomplete
			b.Journal[id] = p
		}
	}
	return lines.Err()
}
