package known

import (
	"bytes"
	"encoding/base64"
	"hash/crc32"
)

// claim is what can be said of a token without a look at its signature.
type claim uint8

const (
	nobody  claim = iota // no token, or text that no verifier takes for one: holds nothing
	one                  // its subject is plain to see
	anybody              // it takes a verifier to say who
)

// maxToken is the longest token that a verifier looks at, in bytes; see internal/token.
const maxToken = 4096

// subject reads whom a token names, without believing it: the CRC-32 of the subject's bytes. It errs on the side of anybody. Whoever forges a holder's
// name only goes the normal way, to limits and signature. scratch is for the decoded claims and is returned, perhaps grown.
func subject(raw, scratch []byte) (sum uint32, who claim, _ []byte) {
	if len(raw) > maxToken || bytes.Count(raw, dot) != 2 {
		return 0, nobody, scratch
	}
	start := bytes.IndexByte(raw, '.') + 1
	segment := raw[start : start+bytes.IndexByte(raw[start:], '.')]
	if n := encoding.DecodedLen(len(segment)); cap(scratch) < n {
		scratch = make([]byte, n)
	}
	n, err := encoding.Decode(scratch[:cap(scratch)], segment)
	if err != nil {
		return 0, nobody, scratch
	}
	name, plain := subjectOf(scratch[:n])
	if !plain {
		return 0, anybody, scratch
	}
	return crc32.ChecksumIEEE(name), one, scratch
}

var (
	encoding = base64.RawURLEncoding.Strict()
	dot      = []byte{'.'}
)

// subjectOf finds the value of "sub" in claims. It must be the only "sub" there in any case of its letters, and the only reading of it: no escapes anywhere,
// and a string that follows at once.
func subjectOf(claims []byte) (name []byte, plain bool) {
	if bytes.IndexByte(claims, '\\') >= 0 {
		return nil, false
	}
	const key = `"sub"`
	after := -1
	for i := 0; i+len(key) <= len(claims); i++ {
		quote := bytes.IndexByte(claims[i:], '"')
		if quote < 0 || i+quote+len(key) > len(claims) {
			break
		}
		i += quote
		if k := claims[i+1 : i+4]; claims[i+4] == '"' && k[0]|0x20 == 's' && k[1]|0x20 == 'u' && k[2]|0x20 == 'b' {
			if after >= 0 {
				return nil, false
			}
			after = i + len(key)
		}
	}
	if after < 0 {
		return nil, false
	}
	rest, ok := bytes.CutPrefix(skipSpace(claims[after:]), []byte{':'})
	if !ok {
		return nil, false
	}
	if rest, ok = bytes.CutPrefix(skipSpace(rest), []byte{'"'}); !ok {
		return nil, false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, false
	}
	return rest[:end], true
}

// skipSpace skips what JSON takes for white space.
func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
