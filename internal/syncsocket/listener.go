package syncsocket

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// listenerDigits is the room for the number of a descriptor.
const listenerDigits = 10

// ListenerNotice is an encoded Seccomp message, which names the descriptor of
// init that is the listener of a seccomp filter. The number is filled in where
// nothing may be allocated, and nothing be called but write(2): the filter is
// loaded by then, so that create fetches the descriptor, see pidfd_getfd(2).
type ListenerNotice struct {
	// Message is what is to be written.
	Message []byte
	digits  []byte
}

// NewListenerNotice returns a message without the number.
func NewListenerNotice() (*ListenerNotice, error) {
	blank := bytes.Repeat([]byte("0"), listenerDigits)
	data, err := Encode(Seccomp, string(blank))
	if err != nil {
		return nil, err
	}
	at := bytes.LastIndex(data, blank)
	return &ListenerNotice{Message: data, digits: data[at : at+listenerDigits]}, nil
}

// SetFD fills in the number, from 0 on. It does not allocate.
func (n *ListenerNotice) SetFD(fd int) {
	for i := range n.digits {
		n.digits[len(n.digits)-1-i] = '0' + byte(fd%10)
		fd /= 10
	}
}

// ListenerFD returns the number that a Seccomp message carries.
func (m *Message) ListenerFD() (int, error) {
	var digits string
	if err := json.Unmarshal(m.Body, &digits); err != nil {
		return 0, fmt.Errorf("parse sync message: %w", err)
	}
	fd, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("parse sync message: %w", err)
	}
	return fd, nil
}
