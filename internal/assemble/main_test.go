package assemble

import (
	"os"
	"testing"
	"time"
)

// TestMain lets the loops wait for the verification of Redis as long as a slow machine may need.
func TestMain(m *testing.M) {
	verifyWait = time.Minute
	os.Exit(m.Run())
}
