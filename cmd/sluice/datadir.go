package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/backend/events/notify"
	"sluice/internal/token"
)

// dataDir is the directory in which `sluice up` keeps its database and its secrets, and where `token`, `sale` and
// `dead` find them.
type dataDir string

// The files in it.
const (
	tokenSecretFile = "token.secret"
	adminTokenFile  = "admin.token"
	serverFile      = "server.json" // the address of the process that uses this directory
	vapidFile       = "vapid.key"
	databaseFile    = "orders.db"
	lockFile        = "lock"
	journalDir      = "journal"
)

type server struct {
	Public string `json:"public"` // http://host:port
	Admin  string `json:"admin"`

	Expect token.Expect `json:"token"` // the claims that the server requires of tokens
}

// open creates the directory and locks it for this process; unlock releases it.
func (d dataDir) open() (unlock func(), err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, usage("--data %s: %w", d, err)
	}
	f, err := os.OpenFile(d.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, usage("--data %s: %w", d, err)
	}
	lock := func(how int) error { return syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB) }
	err = lock(syscall.LOCK_EX)
	for try := 0; err != nil && try < 200 && lock(syscall.LOCK_SH) == nil; try++ { // `use` holds a shared lock briefly
		time.Sleep(time.Millisecond)
		err = lock(syscall.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, usage("the data directory %s is in use by another sluice: stop it, or use --data with another "+
			"directory", d)
	}
	return func() { f.Close() }, nil
}

// use reports whether a process has opened the directory, and whether one has it open now.
func (d dataDir) use() (used, now bool) {
	f, err := os.Open(d.path(lockFile))
	if err != nil {
		return false, false
	}
	defer f.Close()
	return true, syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

func (d dataDir) path(name string) string { return filepath.Join(string(d), name) }

// secret reads a secret, and generates it if its file does not exist or is empty.
func (d dataDir) secret(name string, generate func() (string, error)) (string, error) {
	s, err := d.read(name)
	if s != "" || err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	if s, err = generate(); err != nil {
		return "", err
	}
	return s, d.write(name, []byte(s+"\n"))
}

func newSecret() (string, error) { return rand.Text() + rand.Text(), nil }

func newVAPID() (string, error) {
	key, err := notify.NewKey()
	return key.Private, err
}

func (d dataDir) read(name string) (string, error) {
	b, err := os.ReadFile(d.path(name))
	return strings.TrimSpace(string(b)), err
}

func (d dataDir) write(name string, content []byte) error {
	return createFile(d.path(name), 0o600, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (d dataDir) server() (server, error) {
	var s server
	text, err := d.read(serverFile)
	if err != nil {
		return s, err
	}
	err = json.Unmarshal([]byte(text), &s)
	if err == nil && (s.Public == "" || s.Admin == "") {
		err = errors.New("an address is missing")
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w: start sluice up again", d.path(serverFile), err)
	}
	return s, nil
}

func (d dataDir) setServer(s server) error {
	return createFile(d.path(serverFile), 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}

// claims returns c. It fills empty claims with those of the sluice up that uses the directory.
func (d dataDir) claims(c token.Expect) token.Expect {
	if at, err := d.server(); err == nil {
		c.Issuer, c.Audience = cmp.Or(c.Issuer, at.Expect.Issuer), cmp.Or(c.Audience, at.Expect.Audience)
	}
	return c
}
