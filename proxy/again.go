package proxy

import (
	"errors"
	"io"
)

var errOtherName = errors.New("a second TLS greeting has another name than the first")

// sendGreeting passes the client's TLS greeting, and then record by record what
// is still in the clear. A server may ask for another key (HelloRetryRequest, RFC
// 8446 section 4.1.4), to which the client answers by a second greeting, and
// OpenSSL's takes the name of that one. Nothing forces a client to wait for the
// request, so neither do we: the first record that can't stand between the two
// ends the look at them.
func (x *exchange) sendGreeting() (sent int64, err error) {
	size, more := x.heard.size, true
	for {
		n, err := x.upstream.Write(x.in.take(size))
		sent += int64(n)
		// Early data could go on for ever; a server that has asked for another key
		// skips a few kilobytes of it.
		if err != nil || !more || sent > spliceAfter {
			return sent, err
		}
		if size, more, err = x.nextInClear(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil // the relay meets it again
			}
			if errors.Is(err, errOtherName) {
				_, _ = x.in.Write(accessDenied())
			}
			return sent, err
		}
	}
}

// nextInClear waits for the client's next record, and returns how much may pass
// without a further look and whether a second greeting may come behind it.
func (x *exchange) nextInClear() (size int, more bool, err error) {
	if err := x.in.atLeast(1); err != nil {
		return 0, false, err
	}
	if kind := x.in.buf[0]; kind < recordChangeCipherSpec || kind > recordData {
		return 0, false, nil // no TLS; the server will say so
	}
	if err := x.in.atLeast(recordHeader + 1); err != nil {
		return 0, false, err
	}
	record := x.in.buf
	length := int(record[3])<<8 + int(record[4])
	switch kind := record[0]; {
	case kind == recordHandshake && length > 0 && record[recordHeader] == typeClientHello:
		again, err := x.in.readHello()
		if err != nil || again.serverName != x.heard.serverName {
			return 0, false, errOtherName
		}
		return again.size, false, nil
	case kind == recordHandshake && length > 0:
		return 0, false, nil // an older TLS: the server has answered
	case kind == recordData && !x.heard.earlyData, length > maxRecord+maxExpansion:
		return 0, false, nil
	}
	size = recordHeader + length
	return size, true, x.in.atLeast(size)
}
