package token

// maxOthers is the maximum number of other members in plain claims.
const maxOthers = 8

// plainClaims parses claims in their usual form, about ten times as fast as strictClaims: members of printable ASCII
// with strings or integers as values, without white space, escapes, fractions or signs. It reports false for any other
// form. Its results equal those of strictClaims and of lua/edge/sluice/accel/claims.lua.
func plainClaims(text []byte) (c claims, ok bool) {
	if len(text) == 0 || text[0] != '{' {
		return claims{}, false
	}
	var seen [4]bool
	var others [maxOthers][]byte
	n := 0
	for rest := text[1:]; ; rest = rest[1:] {
		var member, value []byte
		if member, rest, ok = plainText(rest); !ok || len(rest) < 2 || rest[0] != ':' {
			return claims{}, false
		}
		rest = rest[1:]
		which := -1
		switch string(member) {
		case "sub":
			which = 0
			if value, rest, ok = plainText(rest); ok {
				c.subject = string(value)
			}
		case "exp":
			which = 1
			c.expires, rest, ok = plainNumber(rest)
		case "nbf":
			which = 2
			c.notBefore, rest, ok = plainNumber(rest)
		case "iat":
			which = 3
			_, rest, ok = plainNumber(rest)
		default:
			for _, o := range others[:n] {
				ok = ok && string(o) != string(member)
			}
			if !ok || n == maxOthers {
				return claims{}, false
			}
			others[n] = member
			n++
			if rest[0] == '"' {
				_, rest, ok = plainText(rest)
			} else {
				_, rest, ok = plainNumber(rest)
			}
		}
		if !ok || len(rest) == 0 || which >= 0 && seen[which] {
			return claims{}, false
		}
		if which >= 0 {
			seen[which] = true
		}
		switch rest[0] {
		case '}':
			return c, len(rest) == 1 && seen[1] && c.subject != "" && len(c.subject) <= MaxSubject
		case ',':
		default:
			return claims{}, false
		}
	}
}

// plainText parses a JSON string of printable ASCII without escapes.
func plainText(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[1:i], b[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// plainNumber parses an integer of at most eleven digits.
func plainNumber(b []byte) (n float64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && i < 12 && '0' <= b[i] && b[i] <= '9'; i++ {
		n = 10*n + float64(b[i]-'0')
	}
	return n, b[i:], i > 0 && i < 12 && (b[0] != '0' || i == 1)
}
