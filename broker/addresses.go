package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/weirmq/weir/fsm"
)

// listenOn binds one listener; its error says what to do.
func listenOn(name, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the %s port %s is in use: stop the other process or choose another port: %w", name, addr, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("the %s address %s does not belong to this machine: choose one that does: %w", name, addr, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("the %s port %s is not allowed for this user: choose one above 1023: %w", name, addr, err)
	}
	return nil, fmt.Errorf("bind the %s listener %s: %w", name, addr, err)
}

// peerAddress is what AdvertisePeer says; an empty host leaves it to the controller.
func (n *Node) peerAddress() (string, int32, error) {
	if n.cfg.AdvertisePeer == "" {
		return "", 0, nil
	}
	_, listenPort, err := splitAddress(n.cfg.peerListen())
	if err != nil {
		return "", 0, err
	}
	return hostPort(n.cfg.AdvertisePeer, int32(listenPort))
}

// clientAddress is where clients reach this node: what the configuration says,
// else the listener's address, else the host by which its peers know it.
func (n *Node) clientAddress() (fsm.Endpoint, error) {
	bound, ok := n.clientListener.Addr().(*net.TCPAddr)
	if !ok {
		return fsm.Endpoint{}, fmt.Errorf("the client listener %s is not a TCP address", n.clientListener.Addr())
	}
	port := int32(bound.Port)
	switch {
	case n.cfg.Advertise != "":
		host, port, err := hostPort(n.cfg.Advertise, port)
		return fsm.Endpoint{Host: host, Port: port}, err
	case !bound.IP.IsUnspecified():
		return fsm.Endpoint{Host: bound.IP.String(), Port: port}, nil
	}
	if host := n.controller.Advertised().Host; host != "" && !isUnspecified(host) {
		return fsm.Endpoint{Host: host, Port: port}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fsm.Endpoint{}, fmt.Errorf("find this machine's name for clients: %w: give --advertise", err)
	}
	return fsm.Endpoint{Host: host, Port: port}, nil
}

func isUnspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// hostPort splits host or host:port.
func hostPort(addr string, port int32) (string, int32, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return addr, port, nil
	}
	host, p, err := splitAddress(addr)
	return host, int32(p), err
}

// splitAddress splits host:port; the port is a number, 0 asks for a free one.
func splitAddress(addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, errors.New("write it as host:port")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("the port %q is not a number from 0 to 65535", text)
	}
	return host, int(port), nil
}
