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
)

// stream reads one log in a goroutine of its own, and hands its entries on in the order in which their requests came.
type stream struct {
	input   Input
	theatre *theatre
	window  window
	spread  spread
	batches chan []entry

	// Of the reading goroutine, until batches is closed.
	counts  streamCounts
	batch   []entry
	buyers  map[string]string
	stopped bool

	// Of the taking one.
	current *entry
	taken   []entry
}

type streamCounts struct {
	lines, bad, notAsked, repeated, refused, unauthorized int64
	shown                                                 []Bad
	broken                                                error
}

func newStream(input Input, t *theatre, window int64, most int) *stream {
	s := &stream{input: input, theatre: t, batches: make(chan []entry, 8), buyers: map[string]string{}}
	s.window.span, s.window.most = window, most
	s.spread.most = most
	return s
}

// maxLine is far above any line of an access log, and the most that a line of something else can cost.
const maxLine = 64 << 10

func (s *stream) run(ctx context.Context) {
	defer close(s.batches)
	hand := func(e entry) { s.hand(ctx, e) }
	pass := func(e entry) { s.spread.add(e, hand) }
	s.counts.broken = s.read(pass)
	s.window.end(pass)
	s.spread.end(hand)
	s.flush(ctx)
}

// read parses all lines. Its error is that of an input that breaks off.
func (s *stream) read(pass func(entry)) error {
	in, err := unzipped(s.input.Reader)
	if err != nil {
		return err
	}
	var p Parser
	for number := int64(1); !s.stopped; number++ {
		line, long, err := readLine(in)
		switch {
		case long:
			s.bad(number, line, errLong)
		case len(line) > 0:
			s.line(&p, number, line, pass)
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

// unzipped is r, or what is in it where it is gzipped.
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

// readLine returns the next line without the white space around it, which is good until the next call. Of one that is too long it returns the last part.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	for {
		line, err = in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), long, err
		}
		long = true
	}
}

func (s *stream) line(p *Parser, number int64, text []byte, pass func(entry)) {
	var l Line
	if err := p.Parse(text, &l); err != nil {
		s.bad(number, text, err)
		return
	}
	s.counts.lines++
	switch {
	case l.Repeated:
		s.counts.repeated++
		return
	case !l.Asked:
		s.counts.notAsked++
		return
	case l.Refused:
		s.counts.refused++
	case l.Unauthorized:
		s.counts.unauthorized++
	}
	e := entry{at: l.At, line: number, client: l.Client, buyer: s.buyer(l.Buyer), coarse: l.Coarse, unauthorized: l.Unauthorized}
	for i, side := range s.theatre.sides {
		e.covers[i] = side.covers(l.Method, l.Path)
	}
	s.window.add(e, l.Logged, pass)
}

func (s *stream) bad(number int64, text []byte, why error) {
	s.counts.lines++
	s.counts.bad++
	if len(s.counts.shown) < badShown {
		s.counts.shown = append(s.counts.shown, Bad{File: s.input.Name, Line: number, Why: why.Error(), Text: excerpt(text)})
	}
}

const shownText = 80 // bytes of a bad line

func excerpt(text []byte) string {
	cut := ""
	if len(text) > shownText {
		text, cut = text[:shownText], "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(text), "?")) + cut
}

// mostBuyers is how many buyers' names are held to be used again.
const mostBuyers = 1 << 16

// buyer is the name as a string, the same one for the same name where that can be had.
func (s *stream) buyer(name []byte) string {
	if known, ok := s.buyers[string(name)]; ok {
		return known
	}
	if len(s.buyers) >= mostBuyers {
		clear(s.buyers)
	}
	b := string(name)
	s.buyers[b] = b
	return b
}

// hand gives an entry to the judge, in batches.
func (s *stream) hand(ctx context.Context, e entry) {
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

// advance makes current the next entry, or nil at the end and when ctx is done: a pipe may have nothing to say for ever.
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

// addTo adds what the stream has counted to a report. Only after the last entry was taken.
func (s *stream) addTo(r *Report) {
	c := &s.counts
	r.Lines += c.lines
	r.BadLines += c.bad
	r.NotAsked += c.notAsked
	r.Repeated += c.repeated
	r.RefusedBefore += c.refused
	r.Unauthorized += c.unauthorized
	r.OutOfOrder += s.window.outOfOrder
	r.Late += s.window.late
	r.Bad = append(r.Bad, c.shown...)
	if c.broken != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%s breaks off (%v): what came before is in this report", s.input.Name, c.broken))
	}
}
