package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// disk holds the tables of the shop, and can be filled. Where this process may mount, it is a small file system of its
// own: PostgreSQL finds no space left when a table has to grow. Its log is on the machine's disk. Where this process
// may not mount, a trigger fails the insert with the same SQLSTATE (53100) instead.
type disk struct {
	url string // of the shop's database
	dir string // "": the trigger
}

const roomMB = 192

// newDisk creates a database on its own disk, and the trigger that rejects orders of some buyers, see refuse.
func newDisk(t testenv.TB, pg *testenv.Postgres) *disk {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pg.URL)
	if err != nil {
		t.Fatalf("chaos: %v", err)
	}
	defer conn.Close(ctx)
	d := &disk{url: pg.URL}
	mount, err := os.MkdirTemp("", "sluice-chaos-") // not t.TempDir, which only root can read
	if err == nil {
		err = os.Chmod(mount, 0o755)
	}
	if err != nil {
		t.Fatalf("chaos: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(mount) })
	if syscall.Mount("none", mount, "tmpfs", 0, fmt.Sprintf("size=%dm", roomMB)) != nil {
		return d
	}
	t.Cleanup(func() {
		pg.Kill()
		_ = syscall.Unmount(mount, syscall.MNT_DETACH)
	})
	d.dir = filepath.Join(mount, "tables")
	var data string
	err = conn.QueryRow(ctx, "SHOW data_directory").Scan(&data)
	if err == nil {
		err = giveTo(d.dir, data)
	}
	for _, statement := range []string{
		"CREATE TABLESPACE small LOCATION '" + d.dir + "'", "CREATE DATABASE shop TABLESPACE small",
	} {
		if err == nil {
			_, err = conn.Exec(ctx, statement)
		}
	}
	config, parseErr := pgx.ParseConfig(pg.URL)
	if err != nil || parseErr != nil {
		t.Fatalf("chaos: a tablespace of its own: %v %v", err, parseErr)
	}
	d.url = fmt.Sprintf("postgres://%s@%s:%d/shop?sslmode=disable", config.User, config.Host, config.Port)
	return d
}

// giveTo creates dir, with the owner of like.
func giveTo(dir, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s has no owner", like)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, int(owner.Uid), int(owner.Gid))
}

func (d *disk) String() string {
	if d.dir == "" {
		return "a statement that fails as on a full disk (no right to mount)"
	}
	return fmt.Sprintf("a tablespace on a tmpfs of %d MB, filled to the last byte", roomMB)
}

// fill uses all space that is left, and returns a function that frees it.
func (d *disk) fill(ctx context.Context) (undo func() error, err error) {
	if d.dir == "" {
		err := d.exec(ctx, "INSERT INTO chaos_disk_full VALUES (true)")
		return func() error { return d.exec(ctx, "DELETE FROM chaos_disk_full") }, err
	}
	path := filepath.Join(filepath.Dir(d.dir), "ballast")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil { // no room for a block: try half of it
			block = block[:len(block)/2]
		}
	}
	return func() error { return os.Remove(path) }, nil
}

func (d *disk) exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// oddPrefix begins the names of buyers whose orders SQL rejects until the admin has removed the cause: see refuse and
// fix.
const oddPrefix = "odd-"

// refuse installs the trigger. The tables of the shop must exist.
func (d *disk) refuse(ctx context.Context) error {
	return d.exec(ctx, `
CREATE TABLE chaos_disk_full (yes boolean);
CREATE TABLE chaos_fixed (buyer text PRIMARY KEY);
CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM chaos_disk_full) THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    IF NEW.buyer LIKE '`+oddPrefix+`%' AND NEW.status = 'created' AND NOT EXISTS (SELECT FROM chaos_fixed m WHERE m.buyer = NEW.buyer) THEN
        RAISE EXCEPTION 'an odd buyer' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER chaos_refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION chaos_refuse()`)
}

// fix lets SQL accept the orders of an odd buyer.
func (d *disk) fix(ctx context.Context, buyer string) error {
	return d.exec(ctx, "INSERT INTO chaos_fixed VALUES ($1) ON CONFLICT DO NOTHING", buyer)
}
