package archive

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// format names the format of the files: gzip of one JSON object per line. The first line is a header, the last one a
// footer with the numbers of rows; between them are the orders by id and the payments by number.
const format = "sluice-archive/1"

// row is a line of a file. One field is set.
type row struct {
	Header  *header         `json:"archive,omitempty"`
	Order   json.RawMessage `json:"order,omitempty"`
	Payment json.RawMessage `json:"payment,omitempty"`
	Footer  *footer         `json:"end,omitempty"`
}

type header struct {
	Format string `json:"format"`
	SaleID string `json:"sale_id"`
	Part   int    `json:"part"`
}

type footer struct {
	Orders   int64 `json:"orders"`
	Payments int64 `json:"payments"`
}

// archived returns the row with its key.
func (r row) archived() (store.Archived, error) {
	var key struct {
		OrderID sale.OrderID `json:"order_id,string"`
		Number  int64        `json:"number"` // of a payment, which has both
	}
	line := append(r.Order, r.Payment...)
	err := json.Unmarshal(line, &key)
	return store.Archived{ID: cmp.Or(key.Number, int64(key.OrderID)), JSON: string(line)}, err
}

// readPage is how many rows one statement reads.
const readPage = 1000

// write writes all rows of a sale to a file. The file gets its name when it is complete and on disk. The name contains
// the start of the SHA-256, so no run replaces a file that has other rows: of another run at the same time, of another
// deployment, or from before the database was restored.
func (a *Archiver) write(ctx context.Context, saleID string, number int) (part store.ArchivePart, err error) {
	file, err := os.CreateTemp(a.cfg.Dir, fmt.Sprintf("%s-%d-*.tmp", saleID, number)) // mode 0600
	if err != nil {
		return part, err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<18)
	compressed := gzip.NewWriter(buffered)
	lines := json.NewEncoder(compressed)

	if err := lines.Encode(row{Header: &header{format, saleID, number}}); err != nil {
		return part, err
	}
	var count footer
	count.Orders, err = writeRows(lines, "order", func(after int64) ([]store.OrderRow, error) {
		return a.cfg.Store.OrderRows(ctx, store.OrderQuery{SaleID: saleID, After: sale.OrderID(after), Limit: readPage})
	}, func(o store.OrderRow) int64 { return int64(o.ID) })
	if err != nil {
		return part, err
	}
	count.Payments, err = writeRows(lines, "payment", func(after int64) ([]store.Callback, error) {
		return a.cfg.Store.Callbacks(ctx, store.CallbackQuery{SaleID: saleID, After: after, Limit: readPage})
	}, func(p store.Callback) int64 { return p.Number })
	if err != nil {
		return part, err
	}
	for _, do := range []func() error{
		func() error { return lines.Encode(row{Footer: &count}) }, compressed.Close, buffered.Flush, file.Sync,
	} {
		if err := do(); err != nil {
			return part, err
		}
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	name := fmt.Sprintf("%s-%d-%s.ndjson.gz", saleID, number, digest[:16])
	if err := os.Rename(file.Name(), a.path(name)); err != nil {
		return part, err
	}
	part = store.ArchivePart{
		Number: number, File: name, SHA256: digest, Orders: count.Orders, Payments: count.Payments,
	}
	return part, syncDir(a.cfg.Dir)
}

// path returns the path of a file of the archive.
func (a *Archiver) path(name string) string { return filepath.Join(a.cfg.Dir, name) }

// writeRows writes rows, each as the field name of a line, page by page. read returns the next readPage rows behind a
// key. It returns the number of rows.
func writeRows[R any](
	lines *json.Encoder, name string, read func(after int64) ([]R, error), key func(R) int64,
) (n int64, err error) {
	for after := int64(0); ; {
		page, err := read(after)
		if err != nil {
			return n, err
		}
		for _, r := range page {
			if err := lines.Encode(map[string]R{name: r}); err != nil {
				return n, err
			}
		}
		if n += int64(len(page)); len(page) < readPage {
			return n, nil
		}
		after = key(page[len(page)-1])
	}
}

// syncDir makes the names of the files durable, unless the file system cannot sync a directory (EINVAL, ENOTSUP).
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

// read calls each for every row of a file and returns how many orders and payments it has. The error is not nil if the
// file is damaged or incomplete.
func read(path string, each func(row) error) (orders, payments int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	compressed, err := gzip.NewReader(bufio.NewReaderSize(file, 1<<18))
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	lines := json.NewDecoder(compressed)
	var end *footer
	for first := true; ; first = false {
		var r row
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) && end != nil {
			break
		}
		switch {
		case err != nil:
		case end != nil:
			err = errors.New("a line follows the last one")
		case first && (r.Header == nil || r.Header.Format != format):
			err = fmt.Errorf("the first line is not that of %s", format)
		case r.Footer != nil:
			end = r.Footer
		case r.Order != nil:
			orders++
			err = each(r)
		case r.Payment != nil:
			payments++
			err = each(r)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	if end.Orders != orders || end.Payments != payments {
		return 0, 0, fmt.Errorf("%s: it has %d orders and %d payments, and its last line has %d and %d",
			path, orders, payments, end.Orders, end.Payments)
	}
	return orders, payments, nil
}
