package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Addresses of the canary: of documentation networks, on the loopback of the
// suite's own network namespace.
const (
	canaryIPv4 = "192.0.2.1"
	canaryIPv6 = "2001:db8::1"
)

// canary listens outside of all containers, echoes, and counts who came.
type canary struct {
	port     string
	unixName string // abstract
	visits   atomic.Int64
}

// newCanary listens on TCP and UDP of both families, on port 53, and on an
// abstract socket. Tests with a canary must not be parallel.
func newCanary(t *testing.T) *canary {
	t.Helper()
	l := &lab{t: t}
	l.helper("ip", "address", "replace", canaryIPv4+"/32", "dev", "lo")
	l.helper("ip", "address", "replace", canaryIPv6+"/128", "dev", "lo", "nodad")
	c := &canary{unixName: "eggrun-canary-" + filepath.Base(t.TempDir())}
	first := c.stream(t, "tcp4", net.JoinHostPort(canaryIPv4, "0"))
	_, c.port, _ = net.SplitHostPort(first.Addr().String())
	c.stream(t, "tcp6", net.JoinHostPort(canaryIPv6, c.port))
	c.stream(t, "tcp4", net.JoinHostPort("127.0.0.1", c.port))
	c.stream(t, "tcp4", net.JoinHostPort(canaryIPv4, "53"))
	c.stream(t, "unix", "@"+c.unixName)
	c.packets(t, "udp4", net.JoinHostPort(canaryIPv4, c.port))
	c.packets(t, "udp6", net.JoinHostPort(canaryIPv6, c.port))
	c.packets(t, "udp4", net.JoinHostPort(canaryIPv4, "53"))
	return c
}

func (c *canary) stream(t *testing.T, network, address string) net.Listener {
	t.Helper()
	return accepting(t, network, address, func(conn net.Conn) {
		c.visits.Add(1)
		_, _ = io.Copy(conn, conn)
	})
}

// stolen is what the probe sends by a socket of the canary.
const stolen = "stolen"

func (c *canary) packets(t *testing.T, network, address string) {
	t.Helper()
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return // closed
			}
			c.visits.Add(1)
			if string(buffer[:n]) != stolen { // its sender is the canary itself
				_, _ = conn.WriteTo(buffer[:n], from)
			}
		}
	}()
}

// server is an HTTPS and an HTTP server on the host's loopback, under the
// names that the suite's /etc/hosts gives to it.
type server struct {
	httpsPort, httpPort string
	caFile              string
	tls                 *tls.Config
}

// Names that resolve to 127.0.0.1 outside of the containers.
const (
	allowedName = "allowed.test"
	evilName    = "evil.test"
)

// newServer makes a certificate authority, written to caFile, and serves a
// text that names the server.
func newServer(t *testing.T) *server {
	t.Helper()
	certificate, authority := newCertificate(t, allowedName)
	// Not in t.TempDir, which users cannot walk through.
	dir := makeDir(t, filepath.Join(suite.dir, "ca-"+rand.Text()))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{caFile: filepath.Join(dir, "ca.pem"), tls: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	writeFile(t, s.caFile, authority, 0o644)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "this is %s, asked for %s", allowedName, r.Host)
	})
	s.httpsPort = serve(t, "127.0.0.1:0", handler, s.tls)
	s.httpPort = serve(t, "127.0.0.1:0", handler, nil)
	return s
}

func serve(t *testing.T, address string, handler http.Handler, config *tls.Config) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	// Clients that hang up are part of the tests.
	web := &http.Server{Handler: handler, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	return port
}

// domains is an allowlist for the server: the name at both ports, and, since a
// name must not lead to the loopback by itself, the address.
func (s *server) domains() string {
	return strings.Join([]string{allowedName + ":" + s.httpsPort, allowedName + ":" + s.httpPort, "127.0.0.1:" + s.httpsPort, "127.0.0.1:" + s.httpPort}, " ")
}

func newCertificate(t *testing.T, name string) (certificate tls.Certificate, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// accepting serves each connection to a new listener, which it returns.
func accepting(t *testing.T, network, address string, handle func(net.Conn)) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				handle(conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener
}
