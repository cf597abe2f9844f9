package client

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

type sseEvent struct{ name, id, data string }

// maxEvent is the maximum size of the data of an event in bytes.
const maxEvent = bufio.MaxScanTokenSize

var errLargeEvent = fmt.Errorf("an event is larger than %d bytes", maxEvent)

// sseReader parses an event stream, as the HTML standard specifies it.
type sseReader struct {
	lines    *bufio.Scanner
	received func()        // called after each line
	pause    time.Duration // before a reconnect, as the server requested; 0: not requested
}

// next returns the next event with data. An error that wraps ErrNoResponse reports the end of the stream.
func (r *sseReader) next() (e sseEvent, err error) {
	for r.lines.Scan() {
		r.received()
		name, value, _ := strings.Cut(r.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case r.lines.Text() == "" && e.data != "":
			return e, nil
		case r.lines.Text() == "":
			e = sseEvent{}
		case name == "event":
			e.name = value
		case name == "data" && len(e.data)+len(value) >= maxEvent:
			return sseEvent{}, errLargeEvent
		case name == "data" && e.data != "":
			e.data += "\n" + value
		case name == "data":
			e.data = value
		case name == "id":
			e.id = value
		case name == "retry":
			if ms, err := strconv.ParseUint(value, 10, 20); err == nil {
				r.pause = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if errors.Is(r.lines.Err(), bufio.ErrTooLong) {
		return sseEvent{}, errLargeEvent
	}
	return sseEvent{}, fmt.Errorf("%w: the stream has ended", ErrNoResponse)
}
