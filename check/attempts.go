package check

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"eggrun/egress/inside"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// InsideArgument is the argument of the verb with which the container of the try
// calls [Attempt].
const InsideArgument = "inside"

// patience is how long an attempt may take. What the wall refuses it refuses at
// once, but for a packet that is lost silently.
const patience = 2 * time.Second

// listed is a name on the list that is looked up only, for then nobody else is
// asked; denied is on no list.
const (
	listed = "listed.eggrun-check.invalid"
	denied = "denied.eggrun-check.invalid"
)

// targets are the servers of a check, and the secret that tells them from
// whoever else may answer.
type targets struct {
	Secret string `json:"secret"`
	// Allowed and OtherPort are targets of the proxy; the first is on the list.
	Allowed   string `json:"allowed"`
	OtherPort string `json:"other_port"`
	// Named is a name of the host's own, if it has one, with a port on the list.
	Named []string `json:"named"`
	// The rest are addresses of the same servers as the host sees them.
	TCP4     []string `json:"tcp4"`
	TCP6     []string `json:"tcp6"`
	UDP      []string `json:"udp"`
	Abstract string   `json:"abstract"`
}

// attempt is something that a program in a container with a list does.
type attempt struct {
	name string
	// to are the addresses to try one after the other.
	to func(t *targets) []string
	// do returns nil where the address was reached.
	do func(t *targets, address string) error
	// reached says that it is to be reached, refusal is what the error says
	// otherwise, "" where anything will do.
	reached bool
	refusal string
	// control says that the host must reach it: else it means nothing that the
	// container does not.
	control bool
	// tables says that it takes nftables: without them programs must know the
	// proxy.
	tables bool
}

// attempts are all of them.
func attempts() []attempt {
	return []attempt{
		{name: "listed name", to: one(func(t *targets) string { return t.Allowed }), do: connect, reached: true},
		{name: "other name", to: one(func(*targets) string { return denied + ":443" }), do: connect, refusal: "not_listed"},
		{name: "other name, plain HTTP", to: one(func(*targets) string { return "http://" + denied + "/" }), do: get, refusal: "not_listed"},
		{name: "other port", to: one(func(t *targets) string { return t.OtherPort }), do: connect, refusal: "port_not_listed"},
		{name: "listed name, looked up", to: one(func(*targets) string { return listed }), do: lookUp, reached: true, tables: true},
		{name: "other name, looked up", to: one(func(*targets) string { return denied }), do: lookUp, refusal: "no such host", tables: true},
		{name: "listed name, no proxy", to: func(t *targets) []string { return t.Named }, do: over("tcp"), reached: true, tables: true},
		{name: "other port, no proxy", to: one(func(*targets) string { return listed + ".:81" }), do: getDirect, refusal: "port_not_listed", tables: true},
		{name: "other address", to: func(t *targets) []string { return t.TCP4 }, do: over("tcp"), control: true},
		{name: "other address, IPv6", to: func(t *targets) []string { return t.TCP6 }, do: over("tcp"), control: true},
		{name: "UDP", to: func(t *targets) []string { return t.UDP }, do: over("udp"), control: true},
		{name: "abstract unix socket", to: one(func(t *targets) string { return t.Abstract }), do: over("unix"), control: true},
		{name: "raw socket", to: one(func(*targets) string { return "ICMP" }), do: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
		{name: "packet socket", to: one(func(*targets) string { return "AF_PACKET" }), do: socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
		{name: "vsock", to: one(func(*targets) string { return "AF_VSOCK" }), do: socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	}
}

// answers are what came of one attempt: for each address what was refused, ""
// where it was reached.
type answers map[string]string

// Attempt does everything that the wall refuses, and the little that it allows,
// and returns what came of it, to be printed as JSON. It is called inside the
// container. text is the targets, as JSON.
func Attempt(text string) (any, error) {
	t, err := parseTargets(text)
	if err != nil {
		return nil, err
	}
	all := map[string]answers{}
	for _, a := range attempts() {
		all[a.name] = a.make(t)
	}
	return all, nil
}

func (a *attempt) make(t *targets) answers {
	found := answers{}
	for _, address := range a.to(t) {
		found[address] = ""
		if err := a.do(t, address); err != nil {
			found[address] = oneLine(err.Error())
		}
	}
	return found
}

func one(address func(*targets) string) func(*targets) []string {
	return func(t *targets) []string { return []string{address(t)} }
}

// ask asks a server of the check.
func (t *targets) ask(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, t.question()); err != nil {
		return err
	}
	answer := make([]byte, len(t.answer()))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	if string(answer) != t.answer() {
		return errors.New("somebody else answers")
	}
	return nil
}

func (t *targets) question() string { return "eggrun check " + t.Secret + "\n" }
func (t *targets) answer() string   { return "reached " + t.Secret + "\n" }

// over dials without the proxy.
func over(network string) func(*targets, string) error {
	return func(t *targets, address string) error {
		conn, err := net.DialTimeout(network, address, patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		return t.ask(conn)
	}
}

func dialProxy() (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(inside.Port)), patience)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// connect goes through the proxy.
func connect(t *targets, target string) error {
	conn, err := dialProxy()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if err := refusal(response); err != nil {
		return err
	}
	return t.ask(conn)
}

// get asks the proxy for a page.
func get(_ *targets, url string) error {
	conn, err := dialProxy()
	if err != nil {
		return err
	}
	defer conn.Close()
	return request(conn, url, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/"))
}

// getDirect asks for a page as a program does that knows no proxy.
func getDirect(_ *targets, address string) error {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return request(conn, "/", strings.Replace(address, ".:", ":", 1))
}

func request(conn net.Conn, uri, host string) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", uri, host); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return refusal(response)
}

// refusal is what the proxy says, with its code.
func refusal(response *http.Response) error {
	response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("%s (%s)", response.Status, response.Header.Get("X-Eggrun-Deny"))
}

// lookUp asks the name server that the container has, which answers with an
// address of its own for a listed name.
func lookUp(_ *targets, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addresses, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip4", name+".")
	if err == nil && !policy.FakeRange.Contains(addresses[0]) {
		err = fmt.Errorf("the answer is %s, which is not of %s", addresses[0], policy.FakeRange)
	}
	return err
}

func socket(family, kind, protocol int) func(*targets, string) error {
	return func(*targets, string) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}
