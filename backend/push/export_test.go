package push

import "sluice/internal/outbound"

// RetryAfter is for tests.
var RetryAfter = retryAfter

// PublicOnly is a client that reaches what the program reaches by default.
func PublicOnly() Doer { return outbound.New(outbound.Config{}) }
