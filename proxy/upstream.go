package proxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"eggrun/policy"
)

// upstreamProxy is a proxy between this machine and the world. It comes from the
// policy file, never from a container.
type upstreamProxy struct {
	url     *url.URL
	address string // host:port
	target  policy.Target
}

// upstreamError is what an upstream proxy answered, in words for the container.
type upstreamError struct{ words string }

func (e *upstreamError) Error() string { return e.words }

// parseUpstream parses http://[user:password@]host:port.
func parseUpstream(s string) (*upstreamProxy, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("upstream proxy: not a URL") // it may hold a password
	}
	target, err := policy.ParseTarget(u.Host)
	if err != nil || u.Scheme != "http" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("upstream proxy: write http://host:port")
	}
	return &upstreamProxy{url: u, address: target.String(), target: target}, nil
}

// connectVia connects to the upstream proxy, and through it to the target. A
// plain http request needs the connection alone: see onceTransport.
func (x *exchange) connectVia(ctx context.Context) (net.Conn, netip.AddrPort, error) {
	via := x.route.via
	addrs, err := x.p.resolve(ctx, via.target)
	if err != nil {
		return nil, netip.AddrPort{}, &upstreamError{"upstream proxy has no address"}
	}
	dial := x.p.opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext // whoever named the proxy may have it inside
	}
	conn, to, err := race(ctx, dial, addrs, via.target.Port)
	if err != nil {
		return nil, to, &upstreamError{"upstream proxy: " + dialFault(err).words}
	}
	if x.plainHTTP {
		return conn, to, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if x.late, err = via.ask(conn, x.target); err != nil {
		_ = conn.Close()
		return nil, to, err
	}
	return conn, to, nil
}

// ask asks for a tunnel to t and returns the bytes that came behind the answer.
func (u *upstreamProxy) ask(conn net.Conn, t policy.Target) (late []byte, err error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n", t)
	if user := u.url.User; user != nil {
		password, _ := user.Password()
		fmt.Fprintf(&b, "Proxy-Authorization: Basic %s\r\n", base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	b.WriteString("\r\n")
	if _, err := conn.Write(b.Bytes()); err != nil {
		return nil, err
	}
	in := &inbox{Conn: conn}
	const end = "\r\n\r\n"
	for !bytes.Contains(in.buf, []byte(end)) {
		if err := in.more(maxHead); isTimeout(err) {
			return nil, err
		} else if err != nil {
			return nil, &upstreamError{"upstream proxy sent no valid response"}
		}
	}
	answer, late, _ := bytes.Cut(in.buf, []byte(end))
	status, ok := bytes.CutPrefix(answer, []byte("HTTP/1."))
	if !ok || len(status) < len("1 200") || status[1] != ' ' {
		return nil, &upstreamError{"upstream proxy sent no valid response"}
	}
	code, err := strconv.Atoi(string(status[2:5]))
	switch {
	case err != nil:
		return nil, &upstreamError{"upstream proxy sent no valid response"}
	case code/100 != 2:
		return nil, &upstreamError{fmt.Sprintf("upstream proxy answered %d", code)}
	}
	return late, nil
}
