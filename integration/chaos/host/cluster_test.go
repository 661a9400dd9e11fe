package host

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSpareHostJoins checks that a spare host is none of those that the cluster is made of, and
// starts without an id, to join them.
func TestSpareHostJoins(t *testing.T) {
	network, err := NewLoopback(2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Plan{Bin: "echo", Dir: t.TempDir(), Nodes: 1, Network: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if n := len(c.All()); n != 1 {
		t.Errorf("%d hosts before a spare one is asked for", n)
	}
	spare, err := c.Spare()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Spare(); again != spare || err != nil {
		t.Errorf("asked for again it is another one (%v)", err)
	}
	if len(c.Hosts) != 1 || len(c.All()) != 2 || c.Host(int32(spare.ID)) != nil {
		t.Errorf("%d hosts, %d in all, and the spare one is %v", len(c.Hosts), len(c.All()), c.Host(int32(spare.ID)))
	}
	for _, h := range c.All() {
		if err := h.Start(); err != nil {
			t.Fatal(err)
		}
		<-h.done
		text, err := os.ReadFile(h.Log())
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Fields(string(text))
		if i := slices.Index(args, "--join"); i < 0 || args[i+1] != network.Peer(1) {
			t.Errorf("host %d does not join host 1 alone: %v", h.ID, args)
		}
		if named := slices.Contains(args, "--node-id"); named != (h != spare) {
			t.Errorf("host %d starts with an id: %v", h.ID, named)
		}
	}
}
