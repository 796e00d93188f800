package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func fetch(url string) {
	response, err := http.Get(url)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s %s\n", response.Status, body)
}

func connect(proxy, target string) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			fmt.Println("refused")
			return
		}
		fail(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		fail(err)
	}
	fmt.Printf("%s %s\n", response.Proto, response.Status)
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		fmt.Printf("%s\n", body)
	}
}

// hold keeps a tunnel.
func hold(proxy, target string) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		fail(err)
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target)
	first := make([]byte, 1024)
	n, err := conn.Read(first)
	if err != nil || !strings.HasPrefix(string(first[:n]), "HTTP/1.1 200 ") {
		fail(fmt.Errorf("answer %q: %w", first[:n], err))
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, conn)
	fmt.Println("ended")
}

// front asks a server for another name than the proxy.
func front(way, proxy, name, other string) error {
	port := map[string]string{"tls": "443", "http": "80"}[way]
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * patience)); err != nil {
		return err
	}
	fmt.Fprintf(conn, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", name, port)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	if way == "tls" {
		client := tls.Client(conn, &tls.Config{ServerName: other, InsecureSkipVerify: true})
		if err := client.Handshake(); err != nil {
			return err
		}
		conn = client
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", other)
	response, err = http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}

// hog keeps connections.
func hog(address, count string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		fail(err)
	}
	var conns []net.Conn
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			fail(err)
		}
		conns = append(conns, conn)
	}
	fmt.Println("holding")
	time.Sleep(time.Hour)
	runtime.KeepAlive(conns)
}

// sendBytes sends each as one connection's bytes. What comes back may be binary.
func sendBytes(address string, all []string) {
	for _, one := range all {
		text, err := strconv.Unquote(`"` + one + `"`)
		if err != nil {
			fail(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			fail(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * patience)); err != nil {
			fail(err)
		}
		_, _ = io.WriteString(conn, text)
		var line []byte
		if strings.HasPrefix(text, "\x05") { // SOCKS5: two replies without an end of line
			line, err = io.ReadAll(io.LimitReader(conn, 2+10))
		} else {
			line, err = bufio.NewReader(conn).ReadBytes('\n')
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			line = []byte("silence")
		}
		fmt.Printf("%q\n", bytes.TrimRight(line, "\r\n"))
		_ = conn.Close()
	}
}

func serve(address string) {
	var listener net.Listener
	var err error
	if number, ok := strings.CutPrefix(address, "fd:"); ok {
		fd, _ := strconv.Atoi(number)
		listener, err = net.FileListener(os.NewFile(uintptr(fd), address))
	} else {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		fail(err)
	}
	fmt.Println("listening")
	for {
		conn, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		_, _ = io.WriteString(conn, "inside\n")
		_ = conn.Close()
	}
}
