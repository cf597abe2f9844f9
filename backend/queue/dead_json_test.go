package queue

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzLetterIsNeverLost(f *testing.F) {
	f.Add(`{"state":"dead","message":"12 drop 1 1 bob","reason":"no","history":"1\tno\n","crashes":"2","died":"3"}`)
	f.Add(`{"state":"cancelling","raw":"aGVsbG8=","history":"\n\t\n","crashes":"x","died":""}`)
	f.Add(`{broken`)
	f.Fuzz(func(t *testing.T, text string) {
		d := decodeDeadLetter("key", text)
		if d.Key != "key" || d.Raw == nil && d.Message.ID == 0 {
			t.Errorf("%q became %+v, which shows neither a message nor a text", text, d)
		}
	})
}

func FuzzReasonIsOneShortLine(f *testing.F) {
	f.Add("a\tb\nc")
	f.Add(strings.Repeat("é", MaxReason))
	f.Add("\xff\x00 \u2028")
	f.Fuzz(func(t *testing.T, s string) {
		got := cleanReason(s)
		if got == "" || len(got) > MaxReason || !utf8.ValidString(got) || strings.IndexFunc(got, unicode.IsControl) >= 0 {
			t.Errorf("%q became %q", s, got)
		}
	})
}
