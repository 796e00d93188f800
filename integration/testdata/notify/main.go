// Command notify runs inside a container and sends each argument as a message to
// the socket in NOTIFY_SOCKET.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	for _, message := range os.Args[1:] {
		if err == nil {
			_, err = conn.Write([]byte(message))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notify:", err)
		os.Exit(1)
	}
}
