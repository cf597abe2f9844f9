package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sluice/gateway/internal/ascii"
)

// stream reads a log in its own goroutine, and sends its entries in the order of arrival of their requests.
type stream struct {
	input    Input
	replayer *replayer
	window   window
	spread   spread
	batches  chan []entry

	// Used by the reading goroutine, until batches is closed:
	counts    Report // only the counts of lines
	readError error
	batch     []entry
	stopped   bool

	// Used by the replayer:
	current *entry
	taken   []entry
}

func newStream(input Input, t *replayer, span int64, capacity int) *stream {
	return &stream{input: input, replayer: t, batches: make(chan []entry, 8), spread: spread{capacity: capacity},
		window: window{span: span, capacity: capacity}}
}

// maxLine is the longest line, in bytes.
const maxLine = 64 << 10

func (s *stream) run(ctx context.Context) {
	defer close(s.batches)
	send := func(e entry) { s.send(ctx, e) }
	emit := func(e entry) { s.spread.add(e, send) }
	s.readError = s.read(emit)
	s.window.end(emit)
	s.spread.end(send)
	s.flush(ctx)
}

// read parses all lines. It returns the error of a truncated input.
func (s *stream) read(emit func(entry)) error {
	in, err := unzipped(s.input.Reader)
	if err != nil {
		return err
	}
	var p parser
	for number := int64(1); !s.stopped; number++ {
		line, long, err := readLine(in)
		switch {
		case long:
			s.bad(number, line, errLong)
		case len(line) > 0:
			s.line(&p, number, line, emit)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unzipped returns a reader of the text, which may be gzipped.
func unzipped(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, maxLine)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(z, maxLine), nil
}

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

// readLine returns the next line without surrounding white space. It is valid until the next call. Of a line that is
// too long it returns the beginning.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	line, err = in.ReadSlice('\n')
	if long = errors.Is(err, bufio.ErrBufferFull); long {
		line = bytes.Clone(line[:shownText+1])
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = in.ReadSlice('\n')
	}
	return bytes.TrimSpace(line), long, err
}

func (s *stream) line(p *parser, number int64, text []byte, emit func(entry)) {
	var l logLine
	if err := p.parse(text, &l); err != nil {
		s.bad(number, text, err)
		return
	}
	s.counts.Lines++
	switch {
	case l.Cached:
		s.counts.Cached++
		return
	case !l.Evaluated:
		s.counts.NotEvaluated++
		return
	case l.Refused:
		s.counts.RefusedBefore++
	case l.Unauthorized:
		s.counts.Unauthorized++
	case l.Unavailable:
		s.counts.Unavailable++
	}
	e := entry{
		at: l.At, line: number, client: l.Client, buyer: string(l.Buyer), coarse: l.Coarse, unauthorized: l.Unauthorized,
	}
	for i, side := range s.replayer.runs {
		e.covers[i] = side.covers(l.Method, l.Path)
	}
	s.window.add(e, l.Logged, emit)
}

func (s *stream) bad(number int64, text []byte, why error) {
	s.counts.Lines++
	s.counts.BadLines++
	if len(s.counts.Bad) < maxBadShown {
		s.counts.Bad = append(s.counts.Bad, Bad{File: s.input.Name, Line: number, Why: why.Error(), Text: excerpt(text)})
	}
}

const shownText = 80 // bytes of an invalid line

func excerpt(text []byte) string {
	cut := ""
	if len(text) > shownText {
		text, cut = text[:shownText], "..."
	}
	return ascii.ReplaceControls(strings.ToValidUTF8(string(text), "?"), '?') + cut
}

// send sends an entry to the replayer, in batches.
func (s *stream) send(ctx context.Context, e entry) {
	s.batch = append(s.batch, e)
	if len(s.batch) >= batchSize {
		s.flush(ctx)
	}
}

func (s *stream) flush(ctx context.Context) {
	if len(s.batch) == 0 {
		return
	}
	select {
	case s.batches <- s.batch:
		s.batch = make([]entry, 0, batchSize)
	case <-ctx.Done():
		s.stopped = true
		s.batch = s.batch[:0]
	}
}

// advance sets current to the next entry, or to nil at the end and when ctx ends: a pipe may block forever.
func (s *stream) advance(ctx context.Context) {
	if len(s.taken) == 0 {
		select {
		case s.taken = <-s.batches:
		case <-ctx.Done():
		}
		if len(s.taken) == 0 {
			s.current = nil
			return
		}
	}
	s.current, s.taken = &s.taken[0], s.taken[1:]
}

// addTo adds the counts of the stream to a report. Call it after the last entry.
func (s *stream) addTo(r *Report) {
	c := &s.counts
	r.Lines += c.Lines
	r.BadLines += c.BadLines
	r.NotEvaluated += c.NotEvaluated
	r.Cached += c.Cached
	r.RefusedBefore += c.RefusedBefore
	r.Unauthorized += c.Unauthorized
	r.Unavailable += c.Unavailable
	r.OutOfOrder += s.window.outOfOrder
	r.Late += s.window.late
	r.Bad = append(r.Bad, c.Bad...)
	if s.readError != nil {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%s is truncated (%v): the report includes the part before", s.input.Name, s.readError))
	}
}
