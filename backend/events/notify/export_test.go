package notify

import "sluice/internal/outbound"

// Retention is how long a settled message is kept.
const Retention = retention

// PublicOnly returns a client with the default restrictions.
func PublicOnly() *outbound.Client { return outbound.New(outbound.Config{}) }

// Reading reports whether the stream is read.
func (l *Live) Reading() bool { return l.isReading() }
