package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"

	"eggrun/policy"
)

// SOCKS5, RFC 1928. CONNECT without a password is all there is.
const (
	socksVersion = 5

	socksNoAuth   = 0x00
	socksNoMethod = 0xff

	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4
)

// Replies.
const (
	socksGranted         = 0
	socksFailed          = 1
	socksNotAllowed      = 2
	socksHostUnreachable = 4
	socksRefused         = 5
	socksNoCommand       = 7
	socksNoAddressType   = 8
)

// socksReply returns a reply without an address: which one this machine uses is
// not the container's affair.
func socksReply(code byte) []byte {
	return []byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}

// serveSOCKS serves a client whose first byte was that of SOCKS5.
func (x *exchange) serveSOCKS() {
	x.proto = protoSOCKS
	authority, err := x.negotiate()
	if err != nil {
		x.method = "SOCKS5"
		f := x.badRequest("bad_socks", err)
		if wrong := (*socksError)(nil); errors.As(err, &wrong) {
			f.socks = wrong.reply
		}
		x.refuse(f)
		return
	}
	if refused := x.aimSOCKS(authority); refused != nil {
		x.refuse(refused)
		return
	}
	x.stream()
}

// negotiate speaks SOCKS5 up to the request and returns its target as an
// authority.
func (x *exchange) negotiate() (authority string, err error) {
	offered, err := readSOCKS(x.in, socksMethods)
	if err != nil {
		return "", err
	}
	method := byte(socksNoAuth)
	if bytes.IndexByte(offered, socksNoAuth) < 0 {
		method = socksNoMethod
	}
	if _, err := x.in.Write([]byte{socksVersion, method}); err != nil {
		return "", err
	}
	if method == socksNoMethod {
		x.voice = voiceSaid
		return "", errors.New("client insists on a password; there is none")
	}
	x.voice = voiceSOCKS
	return readSOCKS(x.in, socksRequest)
}

// aimSOCKS decides the target of a request. It goes through the same parser as
// that of an HTTP request: a name may not hold a port, a NUL or an address in
// disguise.
func (x *exchange) aimSOCKS(authority string) *refusal {
	x.method, x.uri = "CONNECT", authority
	var err error
	if x.target, err = policy.ParseTarget(authority); err != nil {
		return x.badRequest("bad_target", err)
	}
	return x.admit()
}

// socksError is a request that has a reply of its own.
type socksError struct {
	reply byte
	words string
}

func (e *socksError) Error() string { return e.words }

// readSOCKS reads one message. parse returns how long the message at the
// beginning of its argument is, as far as can be told, and what it says once
// all of it is there.
func readSOCKS[T any](in *inbox, parse func([]byte) (said T, size int, err error)) (T, error) {
	for {
		said, size, err := parse(in.buf)
		if err != nil {
			return said, err
		}
		if size <= len(in.buf) {
			in.take(size)
			return said, nil
		}
		if err := in.more(maxHead); err != nil {
			return said, errors.New("SOCKS5 message ends early")
		}
	}
}

// socksMethods parses the client's greeting and returns the methods it offers.
func socksMethods(b []byte) (methods []byte, size int, err error) {
	if len(b) > 0 && b[0] != socksVersion {
		return nil, 0, errors.New("not SOCKS5")
	}
	if len(b) < 2 {
		return nil, 2, nil
	}
	size = 2 + int(b[1])
	if len(b) < size {
		return nil, size, nil
	}
	return b[2:size], size, nil
}

// socksRequest parses the client's request and returns its target.
func socksRequest(b []byte) (authority string, size int, err error) {
	const header = 4 // version, command, reserved, address type
	switch {
	case len(b) > 0 && b[0] != socksVersion:
		return "", 0, &socksError{socksFailed, "not SOCKS5"}
	case len(b) > 1 && b[1] != socksConnect:
		return "", 0, &socksError{socksNoCommand, "SOCKS5 command other than CONNECT"}
	case len(b) > 2 && b[2] != 0:
		return "", 0, &socksError{socksFailed, "SOCKS5 reserved byte is set"}
	case len(b) < header+1:
		return "", header + 1, nil
	}
	var length int
	address := b[header:]
	switch b[3] {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksName:
		length, address = int(b[header]), b[header+1:]
	default:
		return "", 0, &socksError{socksNoAddressType, "SOCKS5 address type that is not known"}
	}
	size = len(b) - len(address) + length + 2
	if len(b) < size {
		return "", size, nil
	}
	host := string(address[:length])
	port := binary.BigEndian.Uint16(address[length:])
	if addr, ok := netip.AddrFromSlice(address[:length]); ok && b[3] != socksName {
		return netip.AddrPortFrom(addr.Unmap(), port).String(), size, nil
	}
	return host + ":" + strconv.Itoa(int(port)), size, nil
}
