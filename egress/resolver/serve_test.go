package resolver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// serve has s answer on a UDP socket and a TCP listener of 127.0.0.1, and returns
// their addresses. When the test ends s is closed and both have returned nil.
func serve(t *testing.T, s *Server) (udp, tcp string) {
	t.Helper()
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, s, packets, listener)
	return packets.LocalAddr().String(), listener.Addr().String()
}

func serveOn(t *testing.T, s *Server, packets net.PacketConn, listener net.Listener) {
	t.Helper()
	ended := make(chan error, 2)
	go func() { ended <- s.ServeUDP(packets) }()
	go func() { ended <- s.ServeTCP(listener) }()
	t.Cleanup(func() {
		s.Close()
		for range cap(ended) {
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("serving ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("serving never ended")
			}
		}
	})
}

// dial returns a connection that gives up in time.
func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// overUDP returns the outcome of a message that is sent as a datagram.
func overUDP(t *testing.T, conn net.Conn, msg []byte) string {
	t.Helper()
	if _, err := conn.Write(msg); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, maxQuery)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return outcome(t, buffer[:n])
}

// overTCP returns the outcome of a message that is sent on a stream.
func overTCP(t *testing.T, conn net.Conn, msg []byte) string {
	t.Helper()
	if _, err := conn.Write(frame(msg)); err != nil {
		t.Fatal(err)
	}
	answer, err := readFrame(conn, make([]byte, maxTCP))
	if err != nil {
		t.Fatal(err)
	}
	return outcome(t, answer)
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test"), Engine: podman(newZone())})
	udpAddr, tcpAddr := serve(t, s)
	udp, tcp := dial(t, "udp", udpAddr), dial(t, "tcp", tcpAddr)
	// What deserves no answer gets none, and the server goes on.
	for _, msg := range []string{"", "x", string(make([]byte, maxQuery)), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if _, err := io.WriteString(udp, msg); err != nil {
			t.Fatal(err)
		}
	}
	const a = dnsmessage.TypeA
	if got := overUDP(t, dial(t, "udp", udpAddr), question(t, "evil.test", a)); got != "NameError" {
		t.Errorf("UDP: evil.test: %s", got)
	}
	for name, want := range map[string]string{"good.test": "Success 198.18.0.2", "evil.test": "NameError", "db": "Success 10.77.0.5"} {
		if got := overUDP(t, dial(t, "udp", udpAddr), question(t, name, a)); got != want {
			t.Errorf("UDP: %s: %s, want %s", name, got, want)
		}
		if got := overTCP(t, tcp, question(t, name, a)); got != want {
			t.Errorf("TCP: %s: %s, want %s", name, got, want)
		}
	}
	// A frame that is too long, or no question, ends the connection.
	for _, frame := range []string{"\xff\xff", "\x00\x00", "\x00\x01x"} {
		conn := dial(t, "tcp", tcpAddr)
		if _, err := io.WriteString(conn, frame); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("frame %q: %v, want the end", frame, err)
		}
	}
}

// TestGoResolver asks with Go's own resolver, by UDP and by TCP.
func TestGoResolver(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test", "*.wild.test"), Engine: podman(newZone())})
	udpAddr, tcpAddr := serve(t, s)
	for network, address := range map[string]string{"udp": udpAddr, "tcp": tcpAddr} {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
		for name, want := range map[string][]string{
			"good.test.": {"198.18.0.2"}, "GOOD.test.": {"198.18.0.2"}, "x.wild.test.": {"198.18.0.3"}, "db.": {"10.77.0.5"}, "dual.": {"10.77.0.6", "fd77::6"},
		} {
			got, err := r.LookupHost(t.Context(), name)
			if slices.Sort(got); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %s: %v, %v, want %v", network, name, got, err, want)
			}
		}
		for _, name := range []string{"evil.test.", "nobody."} {
			got, err := r.LookupHost(t.Context(), name)
			var dnsErr *net.DNSError
			if !errors.As(err, &dnsErr) || !dnsErr.IsNotFound {
				t.Errorf("%s: %s: %v, %v, want that it does not exist", network, name, got, err)
			}
		}
		for addr, want := range map[string]string{"198.18.0.2": "good.test.", "10.77.0.5": "db.dns.podman."} {
			if got, err := r.LookupAddr(t.Context(), addr); err != nil || !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s: %v, %v, want %s", network, addr, got, err, want)
			}
		}
		if got, err := r.LookupTXT(t.Context(), "good.test."); len(got) != 0 {
			t.Errorf("%s: TXT: %q, %v", network, got, err)
		}
	}
}

// stuck is an engine's resolver that answers nobody until it is told to.
type stuck struct {
	asked chan struct{}
	// cut is closed when a question is given up.
	cut sync.Once
	end chan struct{}
}

func (u *stuck) Exchange(ctx context.Context, _ []byte) ([]byte, error) {
	u.asked <- struct{}{}
	<-ctx.Done()
	u.cut.Do(func() { close(u.end) })
	return nil, ctx.Err()
}

// TestStuckUpstream: when the engine's resolver hangs, allowed names are answered
// nevertheless, no more than so many wait, and Close ends the wait.
func TestStuckUpstream(t *testing.T) {
	t.Parallel()
	u := &stuck{asked: make(chan struct{}, 2*maxAsking), end: make(chan struct{})}
	s := newServer(t, Options{Policy: rules(t, "good.test"), Engine: Engine{IsPeer: inPeers, Upstream: u}})
	udpAddr, _ := serve(t, s)
	waiting := dial(t, "udp", udpAddr)
	for range maxAsking {
		// One name, so that the limit of names is not what is seen.
		if _, err := waiting.Write(question(t, "db", dnsmessage.TypeA)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-u.asked:
		case <-time.After(patience):
			t.Fatal("the engine's resolver is not asked")
		}
	}
	conn := dial(t, "udp", udpAddr)
	if got := overUDP(t, conn, question(t, "db", dnsmessage.TypeA)); got != "ServerFailure" {
		t.Errorf("one question too many: %s, want ServerFailure", got)
	}
	if got := overUDP(t, conn, question(t, "good.test", dnsmessage.TypeA)); got != "Success 198.18.0.2" {
		t.Errorf("good.test: %s", got)
	}
	s.Close()
	select {
	case <-u.end:
	default:
		t.Error("Close has returned, but the question is not given up")
	}
}

// TestManyConnections: idle connections beyond the limit wait, and a client that
// leaves makes room.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test")})
	_, address := serve(t, s)
	var idle []net.Conn
	for range maxConns {
		conn := dial(t, "tcp", address)
		if got := overTCP(t, conn, question(t, "good.test", dnsmessage.TypeA)); got != "Success 198.18.0.2" {
			t.Fatalf("connection %d: %s", len(idle), got)
		}
		idle = append(idle, conn)
	}
	s.openMu.Lock()
	open := len(s.open)
	s.openMu.Unlock()
	late := dial(t, "tcp", address)
	if _, err := late.Write(frame(question(t, "good.test", dnsmessage.TypeA))); err != nil {
		t.Fatal(err)
	}
	idle[0].Close()
	answer, err := readFrame(late, make([]byte, maxTCP))
	if err != nil || outcome(t, answer) != "Success 198.18.0.2" {
		t.Errorf("after one has left: %v", err)
	}
	// The connections, the UDP socket and the listener.
	if want := maxConns + 2; open != want {
		t.Errorf("%d things open, want %d", open, want)
	}
}

// TestClose: what comes after Close is closed at once, and a second Close is none.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	s.Close()
	s.Close()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ServeTCP(listener); err != nil {
		t.Errorf("ServeTCP: %v", err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// TestBrokenListener: an error that no waiting mends comes back.
func TestBrokenListener(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := s.ServeTCP(listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ServeTCP: %v, want %v", err, net.ErrClosed)
	}
}

// TestReloadWhileServing is for the race detector.
func TestReloadWhileServing(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test"), Engine: podman(newZone())})
	udpAddr, _ := serve(t, s)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 50 {
			s.SetPolicy(rules(t, "good.test", fmt.Sprintf("n%d.test", i)))
			s.SetEngine(podman(newZone()))
			s.Pool().NameOf(netip.MustParseAddr("198.18.0.2"))
		}
	})
	conn := dial(t, "udp", udpAddr)
	for range 50 {
		if got := overUDP(t, conn, question(t, "good.test", dnsmessage.TypeA)); got != "Success 198.18.0.2" {
			t.Errorf("good.test: %s", got)
		}
	}
	all.Wait()
}
