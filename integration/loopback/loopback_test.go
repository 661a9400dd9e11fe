package loopback_test

import (
	"net"
	"slices"
	"testing"

	"github.com/weirmq/weir/integration/loopback"
)

// TestFreeAddresses: they differ, each can be bound, by one listener, and what connects
// to it does not come from there.
func TestFreeAddresses(t *testing.T) {
	addrs, err := loopback.FreeAddresses(400) // enough for two to be equal by chance
	if err != nil {
		t.Fatal(err)
	}
	addr := addrs[0]
	if slices.Sort(addrs); len(slices.Compact(addrs)) != 400 {
		t.Error("an address is given twice")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if again, err := net.Listen("tcp", addr); err == nil {
		_ = again.Close()
		t.Errorf("%s was bound twice", addr)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	host, _, _ := net.SplitHostPort(addr)
	from, _, _ := net.SplitHostPort(c.LocalAddr().String())
	if host != "127.0.0.1" && host == from {
		t.Errorf("connections to %s come from %s: their ports and ours can collide", addr, from)
	}
}
