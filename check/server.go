package check

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// servers are the host's side of a check. They answer whoever knows the secret,
// and listen on the loopback addresses and on one address of the host for each
// family, for about a second.
type servers struct {
	targets
	// list are the entries that allow what is to be reached.
	list    []string
	closers []io.Closer
}

func parseTargets(text string) (*targets, error) {
	t := new(targets)
	return t, json.Unmarshal([]byte(text), t)
}

// serve starts the servers. Close them. hosts is /etc/hosts.
func serve(hosts string) (*servers, error) {
	s := &servers{targets: targets{Secret: rand.Text()}}
	if err := s.start(hosts); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *servers) start(hosts string) error {
	allowed, err := s.listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	other, err := s.listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Allowed = net.JoinHostPort("localhost", portOf(allowed))
	s.list = []string{listed, s.Allowed + "!tcp"}
	s.OtherPort = net.JoinHostPort("localhost", portOf(other))
	s.TCP4 = []string{other}
	if name, address := loopbackName(hosts); name != "" {
		if at, err := s.listen("tcp", net.JoinHostPort(address, "0")); err == nil {
			s.Named, s.list = []string{net.JoinHostPort(name+".", portOf(at))}, append(s.list, net.JoinHostPort(name, portOf(at))+"!tcp", at+"!tcp")
		}
	}
	hosts4, hosts6 := hostAddresses()
	for _, host := range hosts4 {
		if at, err := s.listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			s.TCP4 = append(s.TCP4, at)
		}
	}
	for _, host := range append(hosts6, "::1") {
		if at, err := s.listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			s.TCP6 = append(s.TCP6, at)
		}
	}
	for _, host := range append(hosts4, "127.0.0.1") {
		if at, err := s.receive(net.JoinHostPort(host, "0")); err == nil {
			s.UDP = append(s.UDP, at)
		}
	}
	s.Abstract, err = s.listen("unix", "@eggrun-check-"+rand.Text())
	return err
}

// Close ends the servers.
func (s *servers) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// listen answers on a stream and returns where.
func (s *servers) listen(network, at string) (string, error) {
	listener, err := net.Listen(network, at)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, listener)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.reply(conn)
		}
	}()
	return listener.Addr().String(), nil
}

func (s *servers) reply(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(io.LimitReader(conn, 200)).ReadString('\n')
	if err == nil && line == s.question() {
		_, _ = io.WriteString(conn, s.answer())
	}
}

// receive answers on UDP and returns where.
func (s *servers) receive(at string) (string, error) {
	conn, err := net.ListenPacket("udp", at)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, conn)
	go func() {
		packet := make([]byte, 200)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if string(packet[:n]) == s.question() {
				_, _ = conn.WriteTo([]byte(s.answer()), from)
			}
		}
	}()
	return conn.LocalAddr().String(), nil
}

// loopbackName returns a name, and its address, for which nobody need be asked:
// one beside localhost that /etc/hosts has for a loopback address, as it has the
// host's own; "" for none.
func loopbackName(hosts string) (name, address string) {
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 || !net.ParseIP(fields[0]).IsLoopback() {
			continue
		}
		for _, name := range fields[1:] {
			if name != "localhost" && !strings.HasPrefix(name, "localhost.") {
				return name, fields[0]
			}
		}
	}
	return "", ""
}

// hostAddresses returns an address of each family by which others reach this
// host, if it has one.
func hostAddresses() (ipv4, ipv6 []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		list := &ipv6
		if network.IP.To4() != nil {
			list = &ipv4
		}
		if len(*list) == 0 {
			*list = append(*list, network.IP.String())
		}
	}
	return ipv4, ipv6
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
