package notify

import "sluice/internal/outbound"

// RetryAfter is for tests.
var RetryAfter = retryAfter

// PublicOnly is a client that reaches what the program reaches by default.
func PublicOnly() Doer { return outbound.New(outbound.Config{}) }

// Reading tells whether the stream is read.
func (l *Live) Reading() bool { return l.isReading() }
