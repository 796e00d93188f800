package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// open returns a tunnel to a target.
func open(proxy, target string, early []byte) (net.Conn, error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(30 * patience)); err != nil {
		return nil, err
	}
	head := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target)
	if _, err := conn.Write(append([]byte(head), early...)); err != nil {
		return nil, err
	}
	const agreed = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(agreed))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != agreed {
		return nil, fmt.Errorf("answer %q: %w", answer, err)
	}
	return conn, nil
}

// greeting returns the ClientHello of a TLS connection to a server, without the
// record around it.
func greeting(server string, protocols int) []byte {
	here, there := net.Pipe()
	config := &tls.Config{ServerName: server, InsecureSkipVerify: true}
	for i := range protocols {
		config.NextProtos = append(config.NextProtos, fmt.Sprintf("protocol-%0200d", i))
	}
	go func() { _ = tls.Client(here, config).Handshake() }()
	record := make([]byte, 5)
	_, _ = io.ReadFull(there, record)
	hello := make([]byte, binary.BigEndian.Uint16(record[3:]))
	_, _ = io.ReadFull(there, hello)
	_ = there.Close()
	return hello
}

// hello tunnels to a server's port 443 and greets it, or another one, in records of
// so many bytes, each written by itself, or all together with the CONNECT where way
// is "early".
func hello(way, proxy, server, name, size, protocols string) error {
	step, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(protocols)
	if err != nil {
		return err
	}
	var records [][]byte
	for rest := greeting(name, count); len(rest) > 0; {
		n := min(step, len(rest))
		records = append(records, append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, rest[:n]...))
		rest = rest[n:]
	}
	var early []byte
	if way == "early" {
		early, records = bytes.Join(records, nil), nil
	}
	conn, err := open(proxy, net.JoinHostPort(server, "443"), early)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, record := range records {
		if _, err := conn.Write(record); err != nil {
			return err
		}
	}
	answer := make([]byte, 7)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	switch answer[0] {
	case 22:
		return nil
	case 21:
		return fmt.Errorf("alert %d", answer[6])
	}
	return errors.New("no TLS")
}

// half sends a word to a target, ends its own direction, and counts what comes
// until the other one ends.
func half(proxy, target string) error {
	conn, err := open(proxy, target, []byte("upload"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	fmt.Printf("%d bytes\n", n)
	return err
}

// answers asks a name server and prints of each answer the code, how many records
// it has, and "other" where the question in it is not that which was asked, byte by
// byte. A question is TYPE:NAME or TYPE/CLASS:NAME; "two:NAME" is two in one.
func answers(network, server string, questions []string) error {
	conn, err := net.Dial(network, server)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * patience)); err != nil {
		return err
	}
	for i, text := range questions {
		kind, name, _ := strings.Cut(text, ":")
		count := uint16(1)
		if kind == "two" {
			kind, count = "1", 2
		}
		kind, class, hasClass := strings.Cut(kind, "/")
		if !hasClass {
			class = "1"
		}
		var question []byte
		for label := range strings.SplitSeq(name, ".") {
			question = append(append(question, byte(len(label))), label...)
		}
		question = append(question, 0)
		for _, number := range []string{kind, class} {
			value, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				return err
			}
			question = binary.BigEndian.AppendUint16(question, uint16(value))
		}
		message := binary.BigEndian.AppendUint16(nil, uint16(i))
		message = binary.BigEndian.AppendUint16(append(message, 1, 0), count)
		message = append(append(message, 0, 0, 0, 0, 0, 0), question...)
		if err := askFor(network, conn, message, question, name); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

func askFor(network string, conn net.Conn, message, question []byte, name string) error {
	isTCP := strings.HasPrefix(network, "tcp")
	if isTCP {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	if _, err := conn.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	if isTCP {
		if _, err := io.ReadFull(conn, answer[:2]); err != nil {
			return err
		}
		answer = answer[:binary.BigEndian.Uint16(answer)]
		if _, err := io.ReadFull(conn, answer); err != nil {
			return err
		}
	} else {
		n, err := conn.Read(answer)
		if err != nil {
			return err
		}
		answer = answer[:n]
	}
	if len(answer) < 12 {
		return errors.New("short answer")
	}
	same := ""
	if binary.BigEndian.Uint16(answer[4:]) == 1 && !bytes.HasPrefix(answer[12:], question) {
		same = " other"
	}
	fmt.Printf("%s %d %d%s\n", name, answer[3]&15, binary.BigEndian.Uint16(answer[6:]), same)
	return nil
}
