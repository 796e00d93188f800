package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func scanHead(b string) (*head, string) {
	h := new(head)
	done, err := h.scan([]byte(b))
	switch {
	case err != nil:
		return h, err.Error()
	case !done:
		return h, "more"
	}
	return h, ""
}

func TestHead(t *testing.T) {
	t.Parallel()
	const first = "GET http://good.test/ HTTP/1.1\r\n"
	const (
		noCRLF     = "head has lines that do not end in CR LF"
		noLine     = "not a request line; send METHOD target HTTP/1.1"
		noVersion  = "version of HTTP that is not spoken here; send HTTP/1.1"
		noName     = "header line without a name"
		controls   = "head has control bytes"
		noEncoding = "Transfer-Encoding that is not spoken here; send chunked"
		noLength   = "length of the body that is no number"
	)
	for _, tt := range []struct{ name, head, host, wantErr string }{
		{"no headers", first + "\r\n", "", ""},
		{"host", first + "Host: good.test\r\n\r\n", "good.test", ""},
		{"host without space", first + "HOST:good.test\t\r\n\r\n", "good.test", ""},
		{"body ignored", first + "Host: good.test\r\n\r\nHost: evil.test\r\n\r\n", "good.test", ""},
		{"empty value", first + "X:\r\nHost: good.test\r\n\r\n", "good.test", ""},
		{"one length", first + "Content-Length: 3\r\n\r\n", "", ""},
		{"chunked", first + "Transfer-Encoding: Chunked\r\n\r\n", "", ""},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", "", ""},
		{"UTF-8 in the path", "GET /\u00fc HTTP/1.1\r\n\r\n", "", ""},
		{"no end", first + "Host: good.test\r\n", "good.test", "more"},
		{"nothing", "", "", "more"},
		{"bare LF", "GET / HTTP/1.1\nHost: good.test\n\n", "", noCRLF},
		{"bare LF inside", first + "X: a\nHost: evil.test\r\n\r\n", "", noCRLF},
		{"bare CR inside", first + "X: a\rHost: evil.test\r\n\r\n", "", controls},
		{"NUL", first + "X: a\x00\r\n\r\n", "", controls},
		{"folded", first + "X: a\r\n\tb\r\n\r\n", "", "folded header line"},
		{"folded at once", first + " X: a\r\n\r\n", "", "folded header line"},
		{"space before colon", first + "Host : evil.test\r\n\r\n", "", noName},
		{"no colon", first + "Host\r\n\r\n", "", noName},
		{"no name", first + ": x\r\n\r\n", "", noName},
		{"two hosts", first + "Host: good.test\r\nhost: evil.test\r\n\r\n", "evil.test", "more than one Host header"},
		{"two lengths", first + "Content-Length: 3\r\ncontent-length: 3\r\n\r\n", "", "length of the body given twice"},
		{"two encodings", first + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "", "length of the body given twice"},
		{"length and encoding", first + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "", "both Content-Length and Transfer-Encoding"},
		{"encoding in HTTP/1.0", "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "", "Transfer-Encoding in HTTP/1.0"},
		{"other encoding", first + "Transfer-Encoding: gzip, chunked\r\n\r\n", "", noEncoding},
		{"encoding with a trick", first + "Transfer-Encoding: \x0bchunked\r\n\r\n", "", controls},
		{"signed length", first + "Content-Length: +3\r\n\r\n", "", noLength},
		{"list of lengths", first + "Content-Length: 3, 3\r\n\r\n", "", noLength},
		{"empty length", first + "Content-Length:\r\n\r\n", "", noLength},
		{"HTTP/0.9", "GET /\r\n", "", noLine},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", noVersion},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n\r\n", "", noVersion},
		{"lower-case version", "GET / http/1.1\r\n\r\n", "", noVersion},
		{"space at the end", "GET / HTTP/1.1 \r\n\r\n", "", noVersion},
		{"two spaces", "GET  / HTTP/1.1\r\n\r\n", "", noLine},
		{"tab in the target", "GET /\t HTTP/1.1\r\n\r\n", "", noLine},
		{"control in the target", "GET /\x01 HTTP/1.1\r\n\r\n", "", noLine},
		{"odd method", "G<T / HTTP/1.1\r\n\r\n", "", noLine},
		{"empty line first", "\r\nGET / HTTP/1.1\r\n\r\n", "", "not a request for an HTTP or SOCKS5 proxy"},
		{"TLS", "\x16\x03\x01", "", "not a request for an HTTP or SOCKS5 proxy"},
		{"long line", first + "X: " + strings.Repeat("a", maxLine) + "\r\n\r\n", "", "line of more than 8192 bytes"},
		{"long line without an end", strings.Repeat("a", maxLine+1), "", "line of more than 8192 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, got := scanHead(tt.head)
			if h.host != tt.host || got != tt.wantErr {
				t.Errorf("host %q, %q, want %q, %q", h.host, got, tt.host, tt.wantErr)
			}
		})
	}
}

// TestReadHead sends heads in pieces.
func TestReadHead(t *testing.T) {
	t.Parallel()
	const good = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"
	for _, tt := range []struct {
		name, sends, wantErr string
		piece                int
	}{
		{"whole", good, "", len(good)},
		{"byte by byte", good, "", 1},
		{"early end", good[:20], "head ends early", 20},
		{"too long", strings.Replace(good, "Host", strings.Repeat("X: "+strings.Repeat("a", 8000)+"\r\n", 3)+"Host", 1), "head of more than 16384 bytes", 5000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			here, there := net.Pipe()
			go func() {
				defer func() { _ = there.Close() }()
				for piece := range slices.Chunk([]byte(tt.sends), tt.piece) {
					if _, err := there.Write(piece); err != nil {
						return
					}
				}
			}()
			_, err := (&inbox{Conn: here}).readHead()
			_ = here.Close()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.wantErr {
				t.Errorf("%q, want %q", got, tt.wantErr)
			}
		})
	}
}

// FuzzRequestHead compares with net/http: what passes here must mean the same
// there, and nothing that was appended may change it.
func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX: y\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "GET /\r\n", "PRI * HTTP/2.0\r\n\r\n", "G / HTTP/1.1\nHost: x\n\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := new(head)
		done, err := h.scan(b)
		// In pieces it is the same.
		again, pieces := new(head), false
		for i := 0; i <= len(b) && !pieces; i++ {
			var pieceErr error
			if pieces, pieceErr = again.scan(b[:i]); pieceErr != nil {
				if err == nil {
					t.Fatalf("%q: in pieces %v, at once nothing", b, pieceErr)
				}
				return
			}
		}
		if err != nil || !done {
			if pieces {
				t.Fatalf("%q: whole in pieces, but at once %v", b, err)
			}
			return
		}
		if *again != *h {
			t.Fatalf("%q: %+v in pieces, %+v at once", b, again, h)
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(b[:h.size]))))
		if err != nil {
			return // stricter is fine
		}
		if r.Method != h.method || r.RequestURI != h.uri || r.ProtoMinor != int(h.minor-'0') {
			t.Fatalf("%q: %+v, net/http sees %s %s %s", b, h, r.Method, r.RequestURI, r.Proto)
		}
		if r.URL.Host == "" && r.Host != h.host {
			t.Fatalf("%q: host %q, net/http sees %q", b, h.host, r.Host)
		}
		if (h.encodings == 1) != (len(r.TransferEncoding) == 1) || h.lengths == 0 && h.encodings == 0 && r.ContentLength > 0 {
			t.Fatalf("%q: %+v, net/http sees a body of %d, %v", b, h, r.ContentLength, r.TransferEncoding)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
}
