package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// rawSocket returns a socket as it comes from the container's namespace.
func rawSocket(t *testing.T, family, kind int) *os.File {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "upstream")
}

// newNameservers returns an Upstream that asks at servers, which have ports, with
// one UDP and one TCP socket of each family.
func newNameservers(t *testing.T, servers ...string) *Nameservers {
	t.Helper()
	var files []*os.File
	for _, family := range []int{unix.AF_INET6, unix.AF_INET} {
		files = append(files, rawSocket(t, family, unix.SOCK_STREAM), rawSocket(t, family, unix.SOCK_DGRAM))
	}
	n, err := NewNameservers(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	for _, server := range servers {
		n.servers = append(n.servers, netip.MustParseAddrPort(server))
	}
	return n
}

// engineResolver answers for z by UDP and TCP on a port of address.
func engineResolver(t *testing.T, z *zone, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	go func() {
		buffer := make([]byte, maxQuery)
		for {
			n, client, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			answer := z.answer(buffer[:n])
			if len(answer) > plainUDP {
				answer = append(answer[:headerLen:headerLen], buffer[headerLen:n]...)
				answer[2] |= bitTruncated >> 8
				answer[6], answer[7] = 0, 0
			}
			// What arrives late, or is forged, comes before the answer.
			for _, msg := range [][]byte{{}, {1, 2, 3}, append([]byte{buffer[0] ^ 1}, answer[1:]...), answer} {
				if len(msg) > 0 {
					_, _ = packets.WriteTo(msg, client)
				}
			}
		}
	}()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if query, err := readFrame(conn, make([]byte, maxQuery)); err == nil {
				_, _ = conn.Write(frame(z.answer(query)))
			}
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// TestNameservers: two sockets a family are enough for any number of questions, short and
// long ones in turn.
func TestNameservers(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1", "::1"} {
		z := newZone()
		for i := range 60 {
			z.records["many"] = append(z.records["many"], fmt.Sprintf("10.77.0.%d", i+1))
		}
		n := newNameservers(t, engineResolver(t, z, address))
		s := newServer(t, Options{Engine: Engine{IsPeer: inPeers, Upstream: n}})
		for range 3 {
			if got := lookup(t, s, "db", dnsmessage.TypeA); got != "Success 10.77.0.5" {
				t.Errorf("%s: db: %s", address, got)
			}
			q, _, ask, _ := s.handle(question(t, "many", dnsmessage.TypeA))
			if got := len(ask(t.Context()).answers); got != 60 {
				t.Errorf("%s: %s: %d answers, want 60", address, q.name, got)
			}
		}
		n.SetServers(nil)
		if got := lookup(t, s, "db", dnsmessage.TypeA); got != "ServerFailure" {
			t.Errorf("%s: db, of nobody: %s", address, got)
		}
	}
}

// TestNextNameserver: a server that can't be reached, refuses, or is silent is
// followed by the next.
func TestNextNameserver(t *testing.T) {
	t.Parallel()
	mute, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	gone, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	z := newZone()
	n := newNameservers(t, "[fe80::1]:53", gone.LocalAddr().String(), mute.LocalAddr().String(), engineResolver(t, z, "127.0.0.1"))
	s := newServer(t, Options{Engine: Engine{IsPeer: inPeers, Upstream: n}})
	if got := lookup(t, s, "db", dnsmessage.TypeA); got != "Success 10.77.0.5" {
		t.Errorf("db: %s", got)
	}
}

// TestNameserversGiveUp: the end of a context ends the wait for an answer and the
// wait for the turn, and the sockets go on working.
func TestNameserversGiveUp(t *testing.T) {
	t.Parallel()
	mute, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	n := newNameservers(t, mute.LocalAddr().String())
	query := question(t, "db", dnsmessage.TypeA)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() {
			_, err := n.Exchange(ctx, query)
			ended <- err
		}()
	}
	// One has asked, so the other one waits for its turn or will.
	if _, _, err := mute.ReadFrom(make([]byte, maxQuery)); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range cap(ended) {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Exchange: %v, want %v", err, context.Canceled)
			}
		case <-time.After(patience):
			t.Fatal("Exchange never ended")
		}
	}
	n.servers = []netip.AddrPort{netip.MustParseAddrPort(engineResolver(t, newZone(), "127.0.0.1"))}
	if answer, err := n.Exchange(t.Context(), query); err != nil || outcome(t, answer) != "Success 10.77.0.5" {
		t.Errorf("afterwards: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := n.Exchange(t.Context(), query); err == nil {
		t.Error("answered after Close")
	}
}

// TestFewSockets: without sockets nobody is asked, and what is no socket is
// refused, and closed with the rest.
func TestFewSockets(t *testing.T) {
	t.Parallel()
	n, err := NewNameservers([]*os.File{rawSocket(t, unix.AF_INET6, unix.SOCK_DGRAM)}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if answer, err := n.Exchange(t.Context(), question(t, "db", dnsmessage.TypeA)); err == nil {
		t.Errorf("Exchange: %x, want that there is no socket", answer)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	udp := rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM)
	if _, err := NewNameservers([]*os.File{udp, reader}, nil); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("NewNameservers: %v, want %v", err, unix.ENOTSOCK)
	}
	for _, file := range []*os.File{udp, reader} {
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is still open: %v", file.Name(), err)
		}
	}
}
