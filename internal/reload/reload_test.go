package reload

import (
	"errors"
	"testing"
)

func TestChangedReportsEachTextAndErrorOnce(t *testing.T) {
	var d Detector
	missing, denied := errors.New("missing"), errors.New("denied")
	for i, read := range []struct {
		text string
		err  error
		want bool
	}{
		{"", nil, true}, // the first, also of an empty file
		{"", nil, false},
		{"a", nil, true},
		{"a", nil, false},
		{"a", missing, true},
		{"b", missing, false}, // the text of a failed read does not count
		{"", denied, true},
		{"a", nil, true}, // the same text again, after an error
		{"a", nil, false},
		{"", nil, true},
	} {
		if got := d.Changed([]byte(read.text), read.err); got != read.want {
			t.Errorf("read %d: Changed(%q, %v) returned %v", i, read.text, read.err, got)
		}
	}
	text := []byte("x")
	d.Changed(text, nil)
	text[0] = 'y' // the caller may use its memory again
	if !d.Changed(text, nil) {
		t.Error("a change in the memory of the last text is not detected")
	}
}
