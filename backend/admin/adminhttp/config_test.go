package adminhttp

import (
	"strings"
	"testing"
)

func TestMissingFieldsOfTheConfigAreNamed(t *testing.T) {
	if _, err := New(Config{}); err == nil || strings.Count(err.Error(), "adminhttp: Config.") != 14 {
		t.Errorf("%v, want 14 fields", err)
	}
	cfg := newFakeService().config()
	cfg.Token = ""
	if _, err := New(cfg); err == nil || err.Error() != "adminhttp: Config.Token is missing" {
		t.Errorf("%v, want the token alone", err)
	}
}
