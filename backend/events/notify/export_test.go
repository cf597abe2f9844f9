package notify

import "sluice/internal/outbound"

// RetryAfter exports retryAfter.
var RetryAfter = retryAfter

// PublicOnly returns a client with the default restrictions.
func PublicOnly() Doer { return outbound.New(outbound.Config{}) }

// Reading reports whether the stream is read.
func (l *Live) Reading() bool { return l.isReading() }
