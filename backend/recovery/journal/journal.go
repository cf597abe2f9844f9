// Package journal keeps a second copy of the orders that one backend has accepted, in files of its own, until they are rows in SQL. It is read when Redis has lost
// data. It never decides anything: what is in it was accepted, and everything else may be known better elsewhere.
package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/backend/sale"
)

// Sync says when an order is on disk.
type Sync string

// The ways to sync. A process that is killed loses nothing either way: the operating system has what was written. Always also survives a machine that
// loses its power, and makes each group of purchases wait for the disk; Second may lose the last second then.
const (
	Always Sync = "always"
	Second Sync = "second"
)

// Config tunes a Journal. Zero fields take the defaults named here.
type Config struct {
	Sync    Sync         // Second
	Segment int64        // bytes after which a new file is begun; 8 MiB
	Log     *slog.Logger // slog.Default()
}

// Journal is an append-only file of accepted orders, cut into segments. It is safe for concurrent use, by one process.
type Journal struct {
	dir  string
	id   string
	cfg  Config
	lock *os.File

	mu       sync.Mutex
	file     *os.File // the segment that is written
	number   int64
	size     int64
	opened   time.Time
	torn     bool // half a write could not be taken back: the next one begins a new segment
	failed   bool
	dirty    bool
	restored int64

	syncing sync.Mutex // one fsync at a time; who waits for it is covered by the next
	written int64      // count of writes, guarded by mu
	synced  int64      // of these, how many are on disk; guarded by syncing
}

const (
	idFile       = "id"
	restoredFile = "adopted"
	lockFile     = "lock"
	suffix       = ".journal"
)

// Open opens the journal in a folder, which is made if it is not there. Another process that uses the folder is an error.
func Open(dir string, cfg Config) (*Journal, error) {
	if cfg.Sync == "" {
		cfg.Sync = Second
	}
	if cfg.Sync != Always && cfg.Sync != Second {
		return nil, fmt.Errorf("journal: sync %q: want %s or %s", cfg.Sync, Always, Second)
	}
	if cfg.Segment <= 0 {
		cfg.Segment = 8 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("journal: the folder %s is in use by another backend; each needs one of its own", dir)
	}
	j := &Journal{dir: dir, cfg: cfg, lock: lock}
	if err := j.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

func (j *Journal) load() error {
	id, err := os.ReadFile(filepath.Join(j.dir, idFile))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(id) == 0 {
		id = []byte(rand.Text())
		err = j.replace(idFile, id)
	}
	if err != nil {
		return err
	}
	j.id = strings.TrimSpace(string(id))
	if text, err := os.ReadFile(filepath.Join(j.dir, restoredFile)); err == nil {
		j.restored, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // unreadable: adopted once more, which does no harm
	}
	segments, err := j.segments()
	if err != nil {
		return err
	}
	if len(segments) > 0 {
		j.number = segments[len(segments)-1]
	}
	return j.startSegment() // never behind a torn end
}

// ID names this journal among those of other backends, also after a restart.
func (j *Journal) ID() string { return j.id }

// Adopted is the generation of Redis that has the journal's orders, as SetAdopted was told last.
func (j *Journal) Restored() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.restored
}

// SetAdopted remembers that this generation of Redis has every order of the journal, or SQL does.
func (j *Journal) SetRestored(generation int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.replace(restoredFile, strconv.AppendInt(nil, generation, 10)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.restored = generation
	return nil
}

// replace writes a small file as a whole.
func (j *Journal) replace(name string, content []byte) error {
	tmp := filepath.Join(j.dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(j.dir, name))
}

func (j *Journal) path(number int64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%012d%s", number, suffix))
}

// segments lists the numbers of all segments, the oldest first.
func (j *Journal) segments() ([]int64, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// next begins a new segment; mu is held, or nobody else knows the journal yet.
func (j *Journal) startSegment() error {
	if j.file != nil {
		if err := j.file.Sync(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(j.path(j.number+1), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.number, j.size, j.opened, j.torn, j.dirty = f, j.number+1, 0, time.Now(), false, false
	if dir, err := os.Open(j.dir); err == nil { // the new name, too, survives a loss of power
		_ = dir.Sync()
		dir.Close()
	}
	return nil
}

// Append writes down accepted orders, all in one write, and with Always waits until they are on disk; others that wait at the same time share the wait. An error says
// that the journal does not have them: Redis does.
func (j *Journal) Append(orders ...sale.Order) error {
	if len(orders) == 0 {
		return nil
	}
	b := make([]byte, 0, 80*len(orders))
	for _, o := range orders {
		b = appendRecord(b, o)
	}
	turn, err := j.write(b)
	if err == nil && j.cfg.Sync == Always {
		err = j.sync(turn)
	}
	j.logWrite(err)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// tell logs the first failure and the end of failing.
func (j *Journal) logWrite(err error) {
	j.mu.Lock()
	before := j.failed
	j.failed = err != nil
	j.mu.Unlock()
	switch {
	case err != nil && !before:
		j.cfg.Log.Error("journal: accepted orders are not written down; Redis alone has them until they are rows", "err", err)
	case err == nil && before:
		j.cfg.Log.Info("journal: accepted orders are written down again")
	}
}

func (j *Journal) write(b []byte) (turn int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return 0, os.ErrClosed
	}
	if j.torn || j.size >= j.cfg.Segment {
		if err := j.startSegment(); err != nil {
			return 0, err
		}
	}
	n, err := j.file.Write(b)
	if err != nil {
		// Half a write is taken back, or each failure on a full disk would leave a file behind.
		j.torn = n > 0 && j.file.Truncate(j.size) != nil
		return 0, err
	}
	j.size += int64(n)
	j.dirty = true
	j.written++
	return j.written, nil
}

// sync returns when the write with this number is on disk. While one fsync is under way the others wait, and the next covers all of them.
func (j *Journal) sync(turn int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.synced >= turn {
		return nil
	}
	j.mu.Lock()
	upTo, file := j.written, j.file
	j.dirty = false
	j.mu.Unlock()
	if file == nil {
		return os.ErrClosed
	}
	// A segment that was left meanwhile was synced by next, so the file at hand is enough.
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	j.synced = upTo
	return nil
}

// Run syncs every second, where Append does not, until ctx ends; then it syncs once more. It returns nil.
func (j *Journal) Run(ctx context.Context) error {
	if j.cfg.Sync == Always {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return j.flush()
		case <-tick.C:
			if err := j.flush(); err != nil {
				j.logWrite(err)
			}
		}
	}
}

func (j *Journal) flush() error {
	j.mu.Lock()
	turn, dirty := j.written, j.dirty
	j.mu.Unlock()
	if !dirty {
		return nil
	}
	return j.sync(turn)
}

// Close syncs and gives the folder back. Append fails from then on.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.file.Sync(), j.file.Close(), j.lock.Close())
	j.file = nil
	return err
}
