package token

// Remembered is how many headers are.
func (s *Set) Remembered() int { return len(*s.headers.Load()) }
