package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"sluice/test/edgetest"
)

// The result must not depend on how the input is divided into reads.
func TestValidatorIsIndependentOfReadBoundaries(t *testing.T) {
	valid := []string{
		"GET /a?b=c HTTP/1.1\r\nHost: x\r\nAccept:  a b \r\n\r\n",
		"\r\n\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length:   3 \r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
	}
	accepted := func(v *validator, raw string) int { return len(accept(v, []byte(raw))) }
	check := func(raw string, want Fault) {
		t.Helper()
		var whole validator
		n := accepted(&whole, raw)
		if whole.fault != want {
			t.Fatalf("%q: fault %d, want %d", raw, whole.fault, want)
		}
		for cut := 1; cut < len(raw); cut++ {
			var v validator
			got := accepted(&v, raw[:cut])
			if v.fault == NoFault {
				got += accepted(&v, raw[cut:])
			}
			if got != n || v.fault != whole.fault || v.state != whole.state || v.left != whole.left {
				t.Fatalf("%q cut at %d: %d bytes and fault %d, want %d and %d", raw, cut, got, v.fault, n, whole.fault)
			}
		}
		var bytewise validator
		got := 0
		for i := 0; i < len(raw) && bytewise.fault == NoFault; i++ {
			got += accepted(&bytewise, raw[i:i+1])
		}
		if got != n || bytewise.fault != whole.fault {
			t.Fatalf("%q byte by byte: %d bytes and fault %d, want %d and %d", raw, got, bytewise.fault, n, whole.fault)
		}
	}
	for _, raw := range valid {
		check(raw, NoFault)
	}
	for _, raw := range edgetest.HostileHeads() {
		check(raw, MalformedHead)
	}
}

// accept returns the bytes of p that v accepts, of all requests.
func accept(v *validator, p []byte) (accepted []byte) {
	for len(p) > 0 && v.fault == NoFault {
		left, good := v.check(p)
		accepted = append(accepted, p[:good]...)
		p = p[good:left]
	}
	return accepted
}

// net/http must interpret the method, target and framing of an accepted head in the same way.
func FuzzValidatorAgreesWithNetHTTP(f *testing.F) {
	for _, raw := range edgetest.HostileHeads() {
		f.Add([]byte(raw))
	}
	f.Add([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: y\r\n\r\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		accepted := accept(new(validator), bytes.Clone(raw))
		// Read the accepted requests with net/http and a second validator in parallel.
		var second validator
		r := bufio.NewReader(bytes.NewReader(accepted))
		for at := 0; ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return // incomplete, or net/http is stricter
			}
			start := at
			for second.start(); at < len(accepted) && second.inHead(); at++ {
				second.check(accepted[at : at+1])
				if at > start && second.idle() {
					at++
					break
				}
			}
			switch {
			case req.ContentLength < 0 && second.state != chunkedBody:
				t.Fatalf("%q: net/http reads chunks, the validator does not", raw)
			case req.ContentLength > 0 && second.left != req.ContentLength:
				t.Fatalf("%q: net/http reads %d bytes of body, the validator %d", raw, req.ContentLength, second.left)
			case req.ContentLength == 0 && second.state == inBody:
				t.Fatalf("%q: net/http reads no body, the validator %d bytes", raw, second.left)
			}
			if second.state == chunkedBody {
				return
			}
			n, _ := io.Copy(io.Discard, req.Body)
			if n < req.ContentLength {
				return
			}
			at += int(n)
			second.start()
		}
	})
}

// allText must never accept bytes that isText rejects, and must accept what browsers send.
func TestAllTextAgreesWithIsText(t *testing.T) {
	var text [8]byte
	for position := range text {
		for c := range 256 {
			for _, other := range []byte{' ', 'a', '~', 0x80, 0xff, 0, '\t', 0x1f, 0x7f} {
				for i := range text {
					text[i] = other
				}
				text[position] = byte(c)
				valid := isText[other] && isText[c]
				if got := allText(binary.LittleEndian.Uint64(text[:])); got && !valid {
					t.Fatalf("%q is accepted", text)
				} else if !got && valid && c != '\t' && other != '\t' {
					t.Fatalf("%q is rejected", text)
				}
			}
		}
	}
}

func BenchmarkValidator(b *testing.B) {
	head := []byte("GET /v1/sales/42 HTTP/1.1\r\nHost: shop.example\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: */*\r\n" +
		"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nReferer: " +
		"https://shop.example/sale/42\r\n\r\n")
	var v validator
	for b.Loop() {
		if n := v.scan(head); n != len(head) || v.fault != NoFault {
			b.Fatal("rejected")
		}
	}
}
