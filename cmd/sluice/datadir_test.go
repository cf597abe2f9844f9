package main

import "testing"

// An empty file, for example after a failed copy, is no secret: a new one replaces it.
func TestEmptySecretIsReplaced(t *testing.T) {
	d := dataDir(t.TempDir())
	if err := d.write(tokenSecretFile, nil); err != nil {
		t.Fatal(err)
	}
	first, err := d.secret(tokenSecretFile, newSecret)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := d.secret(tokenSecretFile, newSecret); again != first || err != nil {
		t.Errorf("%q, %v, want %q", again, err, first)
	}
}
