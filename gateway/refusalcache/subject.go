package refusalcache

import (
	"bytes"
	"encoding/base64"
	"hash/crc32"

	"sluice/gateway/internal/ascii"
)

// certainty states what is known of a token's subject before the token is verified.
type certainty uint8

const (
	noSubject  certainty = iota // no token, or one that every verifier rejects
	oneSubject                  // every verifier reads the same subject
	ambiguous                   // known only after verification
)

// maxToken is the longest token that a verifier accepts, in bytes; see internal/token.
const maxToken = 4096

// subject returns the CRC-32 of the subject of an unverified token. In doubt it returns ambiguous. A forged subject
// gains nothing: such a request is forwarded, and subject to limits and verification. scratch is a buffer for the
// decoded claims; it is returned, possibly reallocated.
func subject(raw, scratch []byte) (hash uint32, found certainty, _ []byte) {
	if len(raw) > maxToken || bytes.Count(raw, dot) != 2 {
		return 0, noSubject, scratch
	}
	start := bytes.IndexByte(raw, '.') + 1
	segment := raw[start : start+bytes.IndexByte(raw[start:], '.')]
	if n := encoding.DecodedLen(len(segment)); cap(scratch) < n {
		scratch = make([]byte, n)
	}
	n, err := encoding.Decode(scratch[:cap(scratch)], segment)
	if err != nil {
		return 0, noSubject, scratch
	}
	name, ok := findSubject(scratch[:n])
	if !ok {
		return 0, ambiguous, scratch
	}
	return crc32.ChecksumIEEE(name), oneSubject, scratch
}

var (
	encoding = base64.RawURLEncoding.Strict()
	dot      = []byte{'.'}
)

// findSubject returns the value of "sub" in JSON claims without parsing them. It reports false unless there is
// exactly one "sub", in any case and at any depth, its value is a string, and the claims contain no escapes.
func findSubject(claims []byte) (name []byte, ok bool) {
	if bytes.IndexByte(claims, '\\') >= 0 {
		return nil, false
	}
	at := indexSub(claims)
	if at < 0 || indexSub(claims[at+1:]) >= 0 {
		return nil, false
	}
	rest, ok := bytes.CutPrefix(trimSpace(claims[at+len(subKey):]), []byte{':'})
	if !ok {
		return nil, false
	}
	if rest, ok = bytes.CutPrefix(trimSpace(rest), []byte{'"'}); !ok {
		return nil, false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, false
	}
	return rest[:end], true
}

const subKey = `"sub"`

// indexSub returns the index of the first "sub" in any case, or -1.
func indexSub(claims []byte) int {
	for i := 0; ; i++ {
		quote := bytes.IndexByte(claims[i:], '"')
		if quote < 0 {
			return -1
		}
		if i += quote; ascii.HasPrefixFold(claims[i:], subKey) {
			return i
		}
	}
}

// trimSpace removes leading JSON white space.
func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
