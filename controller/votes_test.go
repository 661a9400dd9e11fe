package controller

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// readVote reads a vote as Raft does.
func readVote(t *testing.T, s *raftStable) (uint64, string) {
	t.Helper()
	term, err := s.GetUint64([]byte(keyLastVoteTerm))
	if err != nil && err.Error() != "not found" {
		t.Fatal(err)
	}
	candidate, err := s.Get([]byte(keyLastVoteCand))
	if err != nil && err.Error() != "not found" {
		t.Fatal(err)
	}
	return term, string(candidate)
}

func TestVoteIsSavedWhole(t *testing.T) {
	s, _, _ := newFaulty(t, time.Minute)
	r := &raftStable{store: s}
	if term, candidate := readVote(t, r); term != 0 || candidate != "" {
		t.Fatalf("an empty store says %d, %q", term, candidate)
	}
	// What an earlier version wrote counts until the first vote.
	old := errors.Join(s.SetUint64([]byte(keyLastVoteTerm), 3), s.Set([]byte(keyLastVoteCand), []byte("a")))
	if term, candidate := readVote(t, r); old != nil || term != 3 || candidate != "a" {
		t.Fatalf("two values: %d, %q, %v", term, candidate, old)
	}
	if err := r.SetUint64([]byte(keyLastVoteTerm), 4); err != nil {
		t.Fatal(err)
	}
	// A crash here leaves the vote before.
	if term, candidate := readVote(t, &raftStable{store: s}); term != 3 || candidate != "a" {
		t.Fatalf("half a vote was saved: %d, %q", term, candidate)
	}
	if err := r.Set([]byte(keyLastVoteCand), []byte("b")); err != nil {
		t.Fatal(err)
	}
	if term, candidate := readVote(t, &raftStable{store: s}); term != 4 || candidate != "b" {
		t.Fatalf("after the vote: %d, %q", term, candidate)
	}
	// Other keys are what they were.
	if err := errors.Join(r.SetUint64([]byte(keyTerm), 9), r.Set([]byte("other"), []byte("x"))); err != nil {
		t.Fatal(err)
	}
	n, err := r.GetUint64([]byte(keyTerm))
	v, err2 := r.Get([]byte("other"))
	if n != 9 || !bytes.Equal(v, []byte("x")) || err != nil || err2 != nil {
		t.Fatalf("%d, %q, %v, %v", n, v, err, err2)
	}
	if _, err := r.Get([]byte("none")); !errors.Is(err, errKeyNotFound) || err.Error() != "not found" {
		t.Fatalf("a missing key: %v; Raft compares the text", err)
	}
}

// TestVotesOfAClusterAreWhole looks at what a real election leaves behind.
func TestVotesOfAClusterAreWhole(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	leader := c.leader()
	term, candidate := readVote(t, &raftStable{store: leader.node.store})
	id := leader.node.Identity()
	if now, err := leader.node.store.GetUint64([]byte(keyTerm)); err != nil || term != now || candidate != string(serverID(id.NodeID, id.Folder)) {
		t.Errorf("the leader of term %d has voted for %q in term %d: %v", now, candidate, term, err)
	}
	if _, err := leader.node.store.GetUint64([]byte(keyLastVoteTerm)); !errors.Is(err, errKeyNotFound) {
		t.Errorf("half a vote is in the store: %v", err)
	}
}
