package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
)

// lost is how long something may take that must not get lost.
const lost = 2 * time.Minute

// load is "probe load KIND PROXY TARGET NUMBER...". PROXY is "-" for a program
// that knows of none. The server at TARGET echoes.
func load(kind, proxy, target string, args []string) {
	numbers := make([]int, len(args))
	for i, arg := range args {
		var err error
		if numbers[i], err = strconv.Atoi(arg); err != nil {
			fail(err)
		}
	}
	l := loader{proxy, target}
	switch kind {
	case "bursts":
		l.bursts(numbers[0], numbers[1])
	case "idle":
		l.idle(numbers[0])
	case "heads":
		l.heads(numbers[0])
	case "bytes":
		l.bytes(numbers[0], numbers[1])
	case "names":
		names(target, numbers[0])
	default:
		fail(fmt.Errorf("unknown load %q", kind))
	}
}

type loader struct{ proxy, target string }

// dial opens a tunnel.
func (l loader) dial() (*net.TCPConn, error) {
	address := l.proxy
	if address == "-" {
		address = l.target
	}
	conn, err := net.DialTimeout("tcp", address, lost)
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	if err := tcp.SetDeadline(time.Now().Add(lost)); err != nil {
		return nil, err
	}
	if l.proxy == "-" {
		return tcp, nil
	}
	if err := connectTo(tcp, l.target); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return tcp, nil
}

func connectTo(conn net.Conn, target string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return err
	}
	// The server says nothing by itself, so no byte of it can be lost here.
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// each runs f for 0 to n-1, all at once, and prints how often it succeeded and
// an error.
func each(what string, n int, f func(i int) error) {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	succeeded, last := 0, error(nil)
	for range n {
		if err := <-errs; err != nil {
			last = err
		} else {
			succeeded++
		}
	}
	fmt.Printf("%s: %d of %d, %v\n", what, succeeded, n, last)
}

// exchange sends n bytes, half-closes, and needs the same bytes and then the end.
func exchange(conn *net.TCPConn, seed, n int) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	sent, received := crc32.New(table), crc32.New(table)
	written := make(chan error, 1)
	go func() {
		source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
		_, err := io.CopyN(io.MultiWriter(sent, conn), source, int64(n))
		written <- errors.Join(err, conn.CloseWrite())
	}()
	back, err := io.Copy(received, conn)
	if err := errors.Join(err, <-written); err != nil {
		return err
	}
	if back != int64(n) || received.Sum32() != sent.Sum32() {
		return fmt.Errorf("sent %d bytes with sum %x, got %d with %x", n, sent.Sum32(), back, received.Sum32())
	}
	return nil
}

// bursts opens total tunnels, so many at once, each for a kilobyte.
func (l loader) bursts(total, atOnce int) {
	for first := 0; first < total; first += atOnce {
		each("burst", min(atOnce, total-first), func(i int) error {
			conn, err := l.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			return exchange(conn, first+i, 1000)
		})
	}
}

// idle holds n tunnels until standard input ends, and then sees whether they
// still carry what they should.
func (l loader) idle(n int) {
	conns := make([]*net.TCPConn, n)
	// One word, so that the tunnel is known to lead all the way.
	open := func() (*net.TCPConn, error) {
		conn, err := l.dial()
		if err != nil {
			return nil, err
		}
		if _, err = io.WriteString(conn, "idle"); err == nil {
			_, err = io.ReadFull(conn, make([]byte, len("idle")))
		}
		return conn, err
	}
	each("opened", n, func(i int) (err error) {
		conns[i], err = open()
		return err
	})
	_, err := open()
	fmt.Println("one more:", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	each("still open", n, func(i int) error {
		if conns[i] == nil {
			return errors.New("never opened")
		}
		defer conns[i].Close()
		return errors.Join(conns[i].SetDeadline(time.Now().Add(lost)), exchange(conns[i], i, 1000))
	})
}

// heads opens n connections whose request never ends, needs others to be served
// meanwhile, and waits until the proxy has ended the slow ones.
func (l loader) heads(n int) {
	conns := make([]net.Conn, n)
	each("slow", n, func(i int) (err error) {
		if conns[i], err = net.DialTimeout("tcp", l.proxy, lost); err == nil {
			_, err = io.WriteString(conns[i], "CONNECT "+l.target+" HTTP/1.1\r\nX: ")
		}
		return err
	})
	l.bursts(100, 100)
	each("ended", n, func(i int) error {
		defer conns[i].Close()
		_ = conns[i].SetReadDeadline(time.Now().Add(lost))
		_, err := io.Copy(io.Discard, conns[i])
		return err
	})
}

// bytes sends so many megabytes through each of so many tunnels and back.
func (l loader) bytes(tunnels, megabytes int) {
	each("bytes", tunnels, func(i int) error {
		conn, err := l.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(5 * lost)); err != nil {
			return err
		}
		return exchange(conn, i, megabytes<<20)
	})
}

// names asks for n names below a wildcard, those without an answer again as long
// as there is any that gets one, and tells how many different addresses it got.
func names(below string, n int) {
	var (
		mu       sync.Mutex
		asker    sync.WaitGroup
		found    = map[string]netip.Addr{}
		distinct = map[netip.Addr]bool{}
	)
	ask := func(name string) {
		ctx, cancel := context.WithTimeout(context.Background(), lost)
		defer cancel()
		addrs, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip4", name)
		if err == nil && len(addrs) == 1 {
			mu.Lock()
			found[name], distinct[addrs[0]] = addrs[0], true
			mu.Unlock()
		}
	}
	for before := -1; len(found) > before && len(found) < n; time.Sleep(time.Second) {
		before = len(found)
		for worker := range 16 {
			asker.Go(func() {
				for i := worker; i < n; i += 16 {
					name := fmt.Sprintf("n%d.%s", i, below)
					mu.Lock()
					_, ok := found[name]
					mu.Unlock()
					if !ok {
						ask(name)
					}
				}
			})
		}
		asker.Wait()
	}
	fmt.Printf("names: %d of %d, %d addresses\n", len(found), n, len(distinct))
}
