package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// voice is how the client can be answered at the moment.
type voice int

const (
	// voiceRaw: the client does not expect a word from the proxy, but what its own
	// protocol has for a refusal reaches it.
	voiceRaw voice = iota
	// voiceHTTP: it waits for a status line.
	voiceHTTP
	// voiceSOCKS: it waits for a reply of SOCKS5.
	voiceSOCKS
	// voiceSaid: it has been told.
	voiceSaid
	// voiceReset: it has shown no protocol in which it could be told.
	voiceReset
)

const (
	// sniffTimeout is how long a refused client may take to show its protocol.
	sniffTimeout  = time.Second
	lingerTimeout = 2 * time.Second
	lingerBytes   = 256 << 10
)

// refuse tells the client, and the audit. The exchange is at its end.
func (x *exchange) refuse(f *refusal) {
	x.logRefusal(f)
	switch x.voice {
	case voiceHTTP:
		x.lastWords(f.response(x.method != http.MethodHead))
	case voiceSOCKS:
		x.lastWords(socksReply(f.socks))
	case voiceSaid:
		x.lastWords(nil)
	case voiceRaw:
		x.refuseRaw(f)
	case voiceReset:
		reset(x.in.Conn)
	}
}

// refuseRaw tells a client that only its own protocol can reach: TLS has an
// alert, HTTP a status line. Everything else gets a reset, which cannot be taken
// for the end of an answer.
func (x *exchange) refuseRaw(f *refusal) {
	if len(x.in.buf) == 0 {
		_ = x.in.SetReadDeadline(time.Now().Add(sniffTimeout))
		_ = x.in.more(maxHead)
	}
	switch {
	case f.deny && f.status < 500 && beginsHello(x.in.buf):
		x.p.metrics.add("eggrun_alerts_total", "", 1)
		x.lastWords(accessDenied())
	case beginsRequest(x.in.buf):
		x.lastWords(f.response(!bytes.HasPrefix(x.in.buf, []byte("HEAD "))))
	default:
		reset(x.in.Conn)
	}
}

func beginsHello(b []byte) bool {
	return len(b) > 0 && new(helloReader).plausible(b) == nil
}

// beginsRequest reports whether b begins with a method and a target.
func beginsRequest(b []byte) bool {
	method, target, ok := bytes.Cut(b[:min(len(b), 32)], []byte(" "))
	if !ok || len(method) < 3 || len(target) == 0 {
		return false
	}
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return bytes.IndexByte([]byte("/*h"), target[0]) >= 0
}

// lastWords writes b and ends the connection gently: closing with unread bytes
// (a ClientHello sent along with the CONNECT) makes the kernel send a reset,
// which can overtake the answer.
func (x *exchange) lastWords(b []byte) {
	_ = x.in.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := x.in.Write(b); err != nil {
		return
	}
	if closeWrite(x.in.Conn) == nil {
		_, _ = io.CopyN(io.Discard, x.in.Conn, lingerBytes)
	}
}

// reset closes conn with a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// refuseThrough answers by way of a server that is not the proxy's own and gives
// no connection. Its status lines say nothing.
func (x *exchange) refuseThrough(w http.ResponseWriter, f *refusal) {
	x.logRefusal(f)
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set(denyHeader, string(f.code))
	if f.header[0] != "" {
		h.Set(f.header[0], f.header[1])
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.text())
}

func (f *refusal) text() string { return "eggrun: " + f.body + "\n" }

// response returns f as the bytes of an HTTP response.
func (f *refusal) response(withBody bool) []byte {
	var b bytes.Buffer
	status := fmt.Sprintf("HTTP/1.1 %d eggrun: ", f.status)
	text := f.text()
	fmt.Fprintf(&b, "%s%s\r\n", status, clean(f.phrase, maxStatusLine-len(status)))
	fmt.Fprintf(&b, "%s: %s\r\n", denyHeader, f.code)
	if f.header[0] != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", f.header[0], f.header[1])
	}
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(text))
	if withBody {
		b.WriteString(text)
	}
	return b.Bytes()
}
