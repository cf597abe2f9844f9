package gateway

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// certificate is the edge's own, read again when its files change. HTTP/1.1 is spoken over it; HTTP/2 is the nginx edge's.
type certificate struct {
	certPath, keyPath string
	seen              [2]fileState
	current           atomic.Pointer[tls.Certificate]
}

// readCertificate is nil without an error where no files are named.
func readCertificate(certPath, keyPath string) (*certificate, error) {
	if certPath == "" && keyPath == "" {
		return nil, nil
	}
	if certPath == "" || keyPath == "" {
		return nil, fmt.Errorf("a certificate needs its key, and a key its certificate")
	}
	c := &certificate{certPath: certPath, keyPath: keyPath}
	return c, c.read()
}

func (c *certificate) read() error {
	c.seen = c.state()
	pair, err := tls.LoadX509KeyPair(c.certPath, c.keyPath)
	if err != nil {
		return fmt.Errorf("certificate %s: %s", c.certPath, strings.TrimPrefix(err.Error(), "tls: "))
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificate) state() [2]fileState {
	return [2]fileState{stateOf(c.certPath), stateOf(c.keyPath)}
}

type fileState struct {
	modified time.Time
	size     int64
}

// stateOf is the zero fileState where there is no file.
func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size()}
}

// config is for tls.Server.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// renew takes over files that have changed. Bad ones are logged once, and the certificate before them stays.
func (g *Gateway) renew() {
	c := g.certificate
	if c == nil || c.state() == c.seen {
		return
	}
	if err := c.read(); err != nil {
		g.log.Error("the certificate cannot be used, the one before it stays", "err", err)
		return
	}
	g.log.Info("the certificate has changed")
}
