package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
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
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(b[start+9:], castagnoli))
	hex.Encode(b[start:start+8], sum[:])
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
	if crc32.Checksum(rest, castagnoli) != binary.BigEndian.Uint32(sum[:]) {
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
	for err == nil {
		var line []byte
		line, err = lines.ReadSlice('\n')
		tooLong := false // for a record
		for errors.Is(err, bufio.ErrBufferFull) {
			tooLong = true
			_, err = lines.ReadSlice('\n')
		}
		record, complete := bytes.CutSuffix(line, []byte{'\n'})
		switch o, invalid := parseRecord(record); {
		case tooLong:
			broken++
		case len(record) == 0: // an empty line, or the end
		case complete && invalid == nil:
			each(o)
		default:
			broken++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return broken, err
}
