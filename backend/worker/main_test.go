package worker_test

import (
	"os"
	"testing"

	"sluice/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
