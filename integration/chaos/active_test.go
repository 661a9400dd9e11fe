package chaos

import (
	"testing"

	"github.com/weirmq/weir/integration/chaos/host"
)

func TestMajorityUp(t *testing.T) {
	hosts := []*host.Host{{ID: 1}, {ID: 2}, {ID: 3}}
	one, two := &fault{down: hosts[:1]}, &fault{down: hosts[1:2]}
	for _, c := range []struct {
		name   string
		active []*fault
		want   bool
	}{
		{"nothing", nil, true},
		{"one node", []*fault{one}, true},
		{"one node twice", []*fault{one, {down: hosts[:1]}}, true},
		{"two faults at two nodes", []*fault{one, two}, false},
		{"one fault at two nodes", []*fault{{down: hosts[:2]}}, false},
	} {
		if got := majorityUp(hosts, c.active); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	hosts[2].Abandon()
	if !majorityUp(hosts, nil) || majorityUp(hosts, []*fault{one}) {
		t.Error("a lost host counts as up")
	}
}

// TestFaultsTogetherAreJudgedTogether checks that a fault that begins within another
// makes both such that no majority survives, and that one alone is judged alone.
func TestFaultsTogetherAreJudgedTogether(t *testing.T) {
	hosts := []*host.Host{{ID: 1}, {ID: 2}, {ID: 3}}
	r := &Run{cluster: &host.Cluster{Hosts: hosts}, book: testBook(t)}
	first := r.strike("kill", "kill")
	r.take(first, hosts[:1])
	if !first.survivable {
		t.Error("one of three is a majority")
	}
	second := r.strike("cut", "cut")
	r.take(second, hosts[1:2])
	if first.survivable || second.survivable {
		t.Error("two of three are no majority")
	}
	r.over(second)
	third := r.strike("pause", "pause")
	r.takeNone(third, hosts[2:])
	if first.survivable || !third.survivable {
		t.Errorf("the first stays judged (%v), the third is judged with what is active (%v)", first.survivable, third.survivable)
	}
}
