// Package loopback finds addresses for nodes that tests start, stop and start again.
//
// A port of 127.0.0.1 that was free a moment ago may be anybody's by the time a
// node binds it: another test's, or the local end of any connection on the machine.
// Where the whole of 127.0.0.0/8 is loopback, each process therefore has a host of
// its own in it, which nobody connects from.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// FreeAddresses returns n different HOST:PORT that nobody listens on.
func FreeAddresses(n int) (addrs []string, err error) {
	var held []net.Listener // all at the same time, or one might be found twice
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := listen()
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held, addrs = append(held, l), append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// listen takes any port of this process's own host, or of 127.0.0.1 where it has none.
func listen() (net.Listener, error) {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 1+pid>>14&0x7f, 1+pid>>7&0x7f, 1+pid&0x7f)
	if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
		return l, nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}
