// Package journal stores a second copy of the orders that a backend has accepted, in files on its disk, until they are
// rows in SQL. A rebuild of Redis restores the orders in the journals.
//
// A journal is an append-only log in segments. A segment is deleted when all its orders are rows. The package does not
// decide whether an order is valid; see rebuild.Restorer.
package journal

import (
	"cmp"
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
	"sync/atomic"
	"syscall"
	"time"

	"sluice/backend/sale"
	"sluice/internal/loop"
)

// Sync states when an order is forced to disk.
type Sync string

// Modes of Sync. A killed process loses no order in either mode, because the operating system has the writes. If the
// machine loses power, Second can lose the last second. Always loses nothing and makes each group of purchases wait for
// the disk.
const (
	Always Sync = "always"
	Second Sync = "second"
)

// Config configures a Journal.
type Config struct {
	Sync    Sync         // "" means Second
	Segment int64        // size of a segment in bytes; 0 means 8 MiB
	Log     *slog.Logger // slog.Default() if nil
}

// Journal is the journal of one backend. It is safe for concurrent use by one process.
type Journal struct {
	dir  string
	id   string
	cfg  Config
	lock *os.File
	root *os.File // the directory, for fsync

	mu     sync.Mutex
	file   *os.File // current segment; nil after Close
	number int64
	size   int64
	opened time.Time
	torn   bool        // a partial write could not be truncated; the next write starts a new segment
	failed atomic.Bool // the last write failed; Failing does not wait for mu, which a write holds
	// lost is the number of the last write before a failed fsync. Writes up to it may be missing on the disk: after a
	// failed fsync, Linux drops the unwritten data, and the next fsync succeeds.
	lost     int64
	trimFrom int64         // the segment at which the next Trim begins; 0: the first
	trimTime time.Duration // the time after which a Trim begins no further segment

	syncing sync.Mutex // held during fsync; the next fsync covers all waiting writes
	written int64      // number of writes; guarded by mu
	synced  int64      // number of writes on disk; guarded by syncing
}

const (
	idFile   = "id"
	lockFile = "lock"
	suffix   = ".journal"
)

// Open opens the journal in a directory, and creates the directory if needed. It fails if another process uses the
// directory.
func Open(dir string, cfg Config) (*Journal, error) {
	cfg.Sync = cmp.Or(cfg.Sync, Second)
	if cfg.Sync != Always && cfg.Sync != Second {
		return nil, fmt.Errorf("journal: sync %q: want %s or %s", cfg.Sync, Always, Second)
	}
	cfg.Segment = cmp.Or(max(cfg.Segment, 0), 8<<20)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("journal: directory %s is in use by another backend", dir)
		}
		return nil, fmt.Errorf("journal: lock of directory %s: %w", dir, err)
	}
	j := &Journal{dir: dir, cfg: cfg, lock: lock, trimTime: maxTrim}
	if err := j.load(); err != nil {
		lock.Close()
		j.root.Close()
		return nil, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

func (j *Journal) load() (err error) {
	if j.root, err = os.Open(j.dir); err != nil {
		return err
	}
	id, err := os.ReadFile(filepath.Join(j.dir, idFile))
	j.id = strings.TrimSpace(string(id))
	if errors.Is(err, os.ErrNotExist) || err == nil && j.id == "" {
		if err := syncParents(j.dir); err != nil {
			return err
		}
		j.id = rand.Text()
		err = j.replace(idFile, j.id)
	}
	if err != nil {
		return err
	}
	segments, err := j.segments()
	if err != nil {
		return err
	}
	if len(segments) > 0 {
		j.number = segments[len(segments)-1]
	}
	return j.startSegment() // never append to a partial record
}

// syncParents makes the name of a new directory, and those of its parents, durable: a loss of power must not remove the
// whole journal. It skips directories that are read-only or that it may not open: this process did not create them.
func syncParents(dir string) error {
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		err := syncParent(parent)
		if err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	return nil
}

func syncParent(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncDir(d)
}

// syncDir makes the names in a directory durable. Some file systems cannot sync a directory (EINVAL, ENOTSUP), which is
// no error. After any other error a loss of power can remove files of the directory.
func syncDir(d *os.File) error {
	err := fsyncDir(d)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

// Variables for tests.
var (
	fsyncDir = (*os.File).Sync
	flock    = syscall.Flock
)

// ID returns the unique id of this journal, which is the same after a restart.
func (j *Journal) ID() string { return j.id }

// replace replaces a small file atomically.
func (j *Journal) replace(name, content string) error {
	tmp := filepath.Join(j.dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(j.dir, name))
}

func (j *Journal) path(number int64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%012d%s", number, suffix))
}

// segments returns the numbers of all segments, oldest first.
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

// startSegment starts a new segment. After an error the current one stays. The caller holds mu.
func (j *Journal) startSegment() error {
	if j.file != nil {
		if err := j.file.Sync(); err != nil {
			j.lost = j.written
			j.cfg.Log.Error(writeFailed, "err", err)
		}
	}
	f, err := os.OpenFile(j.path(j.number+1), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// The directory entry must survive a loss of power too.
	if err := syncDir(j.root); err != nil {
		f.Close()
		// The next call creates the file again. Another fsync for this file could succeed although its name is lost.
		_ = os.Remove(f.Name())
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.number, j.size, j.opened, j.torn = f, j.number+1, 0, time.Now(), false
	return nil
}

// Append appends accepted orders in one write. With Always it waits until they are on disk; concurrent calls share an
// fsync. After an error the journal may lack the orders; Redis has them.
func (j *Journal) Append(orders ...sale.Order) error {
	_, err := j.append(orders)
	return err
}

// append is Append, and returns the number of the write, for sync.
func (j *Journal) append(orders []sale.Order) (turn int64, err error) {
	if len(orders) == 0 {
		return 0, nil
	}
	b := make([]byte, 0, 80*len(orders))
	for _, o := range orders {
		b = appendRecord(b, o)
	}
	turn, err = j.write(b)
	if err == nil && j.cfg.Sync == Always {
		err = j.sync(turn)
	}
	j.logWrite(err)
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	return turn, nil
}

const writeFailed = "journal: write failed; it lacks accepted orders until they are rows or it can be written again"

// logWrite logs the first failure of a series, and its end.
func (j *Journal) logWrite(err error) {
	before := j.failed.Swap(err != nil)
	switch {
	case err != nil && !before:
		j.cfg.Log.Error(writeFailed, "err", err)
	case err == nil && before:
		j.cfg.Log.Info("journal: writes succeed again")
	}
}

// Failing reports whether the last write failed, so the journal may lack accepted orders that are not rows yet. It does
// not wait for a write in progress.
func (j *Journal) Failing() bool { return j.failed.Load() }

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
	if j.lost > 0 && j.lost == j.written { // the record before this one may be incomplete on the disk
		b = slices.Insert(b, 0, '\n')
	}
	n, err := j.file.Write(b)
	if err != nil {
		// Truncate a partial write. Otherwise each failure on a full disk would start a new segment.
		j.torn = n > 0 && j.file.Truncate(j.size) != nil
		return 0, err
	}
	j.size += int64(n)
	j.written++
	return j.written, nil
}

// errLost is the error of writes that were not on disk before a failed fsync.
var errLost = errors.New("an fsync failed before, and the disk may lack the write")

// sync returns when the write with this number is on disk. During an fsync other calls wait, and the next fsync covers
// them. After a failed fsync, it returns errLost for all writes that preceded the failure.
func (j *Journal) sync(turn int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	upTo, file, lost := j.written, j.file, j.lost
	j.mu.Unlock()
	switch {
	case turn > 0 && turn <= lost:
		return errLost
	case j.synced >= turn:
		return nil
	case file == nil:
		return os.ErrClosed
	}
	err := file.Sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, os.ErrClosed): // startSegment has synced a file before it closes it
		j.lost = j.written
		return err
	case turn <= j.lost:
		return errLost
	}
	j.synced = upTo
	return nil
}

// Run syncs every second in mode Second until ctx ends, then once more. It returns the error of the last sync.
func (j *Journal) Run(ctx context.Context) error {
	if j.cfg.Sync == Always {
		<-ctx.Done()
		return nil
	}
	for {
		loop.Tick(ctx, time.Second)
		err := j.flush()
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			j.logWrite(err)
		}
	}
}

// flush returns when all writes are on disk.
func (j *Journal) flush() error {
	j.mu.Lock()
	turn := j.written
	j.mu.Unlock()
	return j.sync(turn)
}

// Close syncs the journal and releases the directory. Append fails after Close.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.file.Sync(), j.file.Close(), j.root.Close(), j.lock.Close())
	j.file = nil
	return err
}
