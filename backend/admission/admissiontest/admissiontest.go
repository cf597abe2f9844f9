// Package admissiontest makes Admitters for tests of other packages.
package admissiontest

import (
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// NewAdmitter returns an Admitter over client. Each change edits its Config. Its timeout is a minute, because a busy
// machine delays tests by seconds.
func NewAdmitter(
	tb testing.TB, client redisconn.Client, space keyspace.Space, change ...func(*admission.Config),
) *admission.Admitter {
	tb.Helper()
	cfg := admission.Config{Client: client, Space: space, IDs: admission.NewSequencer(client, space, time.Now),
		Timeout: time.Minute}
	for _, edit := range change {
		edit(&cfg)
	}
	a, err := admission.NewAdmitter(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
