package chaos

import (
	"bytes"
	"sync"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// addresses is a toxic that replaces the addresses of nodes in the reply of CLUSTER NODES ("127.0.0.1:12345@"). All
// addresses have the same length, because the reply begins with its own.
type addresses struct {
	Addresses map[string]string `json:"addresses"` // of a proxy, by that of its node
}

// registerAddresses registers the toxic in toxiproxy, once per process.
var registerAddresses = sync.OnceFunc(func() { toxics.Register("addresses", new(addresses)) })

// rest is the end of the last chunk of a connection, if it may be the beginning of an address.
type rest struct{ text []byte }

// NewState implements toxics.StatefulToxic.
func (*addresses) NewState() any { return new(rest) }

// Pipe implements toxics.Toxic.
func (a *addresses) Pipe(stub *toxics.ToxicStub) {
	kept := stub.State.(*rest)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				if len(kept.text) > 0 {
					stub.Output <- &stream.StreamChunk{Data: kept.text}
				}
				stub.Close()
				return
			}
			chunk.Data, kept.text = a.rename(append(kept.text, chunk.Data...))
			if len(chunk.Data) > 0 {
				stub.Output <- chunk
			}
		}
	}
}

// addressForm is the form of an address; 0 stands for any digit.
const addressForm = "127.0.0.1:00000@"

// rename replaces the addresses in a part of a stream. It returns the end of the part separately if that may be the
// beginning of an address. No reply ends with such a part.
func (a *addresses) rename(part []byte) (done, kept []byte) {
	end := len(part)
	for n := min(len(addressForm)-1, len(part)); n > 0; n-- {
		if hasForm(part[len(part)-n:]) {
			end = len(part) - n
			break
		}
	}
	done, kept = part[:end:end], bytes.Clone(part[end:])
	if bytes.Contains(done, []byte(addressForm[:len("127.0.0.1:")])) {
		for node, proxy := range a.Addresses {
			done = bytes.ReplaceAll(done, []byte(node+"@"), []byte(proxy+"@"))
		}
	}
	return done, kept
}

// hasForm reports whether text can be the beginning of an address.
func hasForm(text []byte) bool {
	for i, c := range text {
		digit := i >= len("127.0.0.1:") && i < len(addressForm)-1
		if digit && (c < '0' || c > '9') || !digit && c != addressForm[i] {
			return false
		}
	}
	return true
}
