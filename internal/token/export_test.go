package token

// CachedHeaders returns the number of cached headers.
func (s *Set) CachedHeaders() int { return len(*s.headers.Load()) }
