package controller

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// defaultPeerPort is added to a listed address that names none.
const defaultPeerPort = "9093"

// joinList is a --join list in the one order that all nodes agree on: by host, then port.
type joinList []string

// parseJoin normalises a --join list; an empty one means a cluster of this node alone. How many
// it may name depends on whether they have a cluster already; see decideForming.
func parseJoin(list []string) (joinList, error) {
	var out joinList
	for _, s := range list {
		a, err := normalAddr(s)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, a) {
			return nil, fmt.Errorf("the join list names %s twice", a)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, compareAddrs)
	return out, nil
}

func normalAddr(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), defaultPeerPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.ContainsAny(host, " /") {
		return "", fmt.Errorf("%q in the join list is not host:port", s)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func compareAddrs(a, b string) int {
	hostA, portA := splitAddr(a)
	hostB, portB := splitAddr(b)
	return cmp.Or(cmp.Compare(hostA, hostB), cmp.Compare(portA, portB))
}

// splitAddr takes a normalised address apart.
func splitAddr(a string) (host string, port int) {
	host, p, err := net.SplitHostPort(a)
	if err != nil {
		return a, 0
	}
	port, _ = strconv.Atoi(p)
	return host, port
}

func (l joinList) String() string { return strings.Join(l, ",") }
