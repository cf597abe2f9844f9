package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// BuildSluice builds the command of the repository at root and returns the path of a copy in the directory dir. The
// build is cached in the user's cache directory, one per root, so that of several test processes only the first links
// it. Without a cache directory each builds its own.
func BuildSluice(root, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "sluice")
	kept, unlock, err := keptBuild(root)
	if err != nil {
		return binary, build(root, binary)
	}
	defer unlock()
	if err := build(root, kept); err != nil {
		return "", err
	}
	program, err := os.ReadFile(kept)
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	if err := os.WriteFile(binary, program, 0o755); err != nil { // a link would change under running programs
		return "", fmt.Errorf("testenv: %w", err)
	}
	return binary, nil
}

func build(root, to string) error {
	cmd := exec.Command("go", "build", "-o", to, "./cmd/sluice")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// keptBuild returns the path of root's program in the cache. The caller has exclusive access until unlock, or until its
// process ends.
func keptBuild(root string) (path string, unlock func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return "", nil, err
	}
	dir := filepath.Join(cache, "sluice-test", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:16])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		lock.Close()
		return "", nil, err
	}
	return filepath.Join(dir, "sluice"), func() { lock.Close() }, nil
}
