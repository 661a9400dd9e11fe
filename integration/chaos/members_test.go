package chaos

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/weirmq/weir/integration/chaos/host"
)

// TestTakenVotesCountAsAway checks that a cluster has to go on without a vote, and not when
// another node of three is gone as well: the two that are left to vote are both needed.
func TestTakenVotesCountAsAway(t *testing.T) {
	k, err := kindNamed("members")
	if err != nil {
		t.Fatal(err)
	}
	k.inflict = func(context.Context, *Run, []*host.Host) (func(context.Context) error, error) { return nil, nil }
	hosts := []*host.Host{{ID: 1}, {ID: 2}, {ID: 3}}
	r := &Run{cluster: &host.Cluster{Hosts: hosts}, book: testBook(t), options: Options{Text: io.Discard}}
	f := r.strike("members", "members")
	if _, err := r.inflict(t.Context(), f, k, hosts[:1]); err != nil || !f.survivable {
		t.Errorf("a vote less is not survived (%v)", err)
	}
	r.take(r.strike("kill", "kill"), hosts[1:2])
	if f.survivable {
		t.Error("one of two that vote is a majority")
	}
}

// TestVotesComeBackLast checks that the end of members, which waits for nodes, comes after that
// of a fault which holds them, whichever began first.
func TestVotesComeBackLast(t *testing.T) {
	members, err := kindNamed("members")
	if err != nil {
		t.Fatal(err)
	}
	pause, err := kindNamed("pause")
	if err != nil {
		t.Fatal(err)
	}
	for _, kinds := range [][]Kind{{members, pause}, {pause, members}} {
		var ended []string
		r := &Run{cluster: &host.Cluster{}, book: testBook(t), options: Options{Text: io.Discard}}
		var aims []Aim
		for i := range kinds {
			k := &kinds[i]
			k.inflict = func(context.Context, *Run, []*host.Host) (func(context.Context) error, error) {
				return func(context.Context) error { ended = append(ended, k.Name); return nil }, nil
			}
			aims = append(aims, Aim{k.Name, Nobody})
		}
		f := r.strike("both", "both")
		for _, end := range r.aimAll(t.Context(), f, kinds, aims) {
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"pause", "members"}; !slices.Equal(ended, want) {
			t.Errorf("%s first: ended in order %v, want %v", kinds[0].Name, ended, want)
		}
	}
}
