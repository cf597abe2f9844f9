package journal

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"sluice/backend/sale"
)

// A record is one line, so that a reader can continue after a broken one:
//
//	<CRC-32C of the rest, 8 hex digits> <order id> <sale id> <buyer>
//
// No field contains a line feed. The buyer comes last because it may contain spaces. Empty lines are not records.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendRecord(b []byte, o sale.Order) []byte {
	start := len(b)
	b = append(b, "00000000 "...)
	b = strconv.AppendInt(b, int64(o.ID), 10)
	b = append(append(b, ' '), o.SaleID...)
	b = append(append(b, ' '), o.Buyer...)
	sum := crc32.Checksum(b[start+9:], castagnoli)
	hex.Encode(b[start:start+8], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return append(b, '\n')
}

var errRecord = errors.New("journal: invalid record")

// parseRecord parses a line without its line feed. It accepts exactly what appendRecord writes.
func parseRecord(line []byte) (sale.Order, error) {
	if len(line) < 10 || line[8] != ' ' {
		return sale.Order{}, errRecord
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], line[:8]); err != nil || bytes.ContainsAny(line[:8], "ABCDEF") {
		return sale.Order{}, errRecord
	}
	rest := line[9:]
	if crc32.Checksum(rest, castagnoli) != uint32(sum[0])<<24|uint32(sum[1])<<16|uint32(sum[2])<<8|uint32(sum[3]) {
		return sale.Order{}, errRecord
	}
	id, rest2, _ := strings.Cut(string(rest), " ")
	saleID, buyer, found := strings.Cut(rest2, " ")
	n, err := sale.ParseOrderID(id)
	if err != nil || !found || sale.ValidateID(saleID) != nil || sale.ValidateBuyer(buyer) != nil {
		return sale.Order{}, errRecord
	}
	return sale.Order{ID: n, SaleID: saleID, Buyer: buyer, Slot: 1, Status: sale.StatusQueued}, nil
}

// read calls each for every valid record, and counts the broken lines: a partial last record, or a disk error. It stops
// early only at a read error.
func read(from io.Reader, each func(sale.Order)) (broken int, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		complete := err == nil
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // longer than any record
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			broken++
			if err == nil {
				continue
			}
			line = nil
		case complete && len(line) == 1:
			continue
		case complete:
			if o, perr := parseRecord(line[:len(line)-1]); perr == nil {
				each(o)
			} else {
				broken++
			}
			continue
		}
		if len(line) > 0 {
			broken++ // a record without its line feed is incomplete
		}
		if errors.Is(err, io.EOF) {
			return broken, nil
		}
		return broken, err
	}
}
