package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Raft's names of the two halves of a vote, and ours of the whole.
const (
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
	keyVote         = "Vote"
)

// raftStable is the stable store as Raft sees it.
//
// Raft saves a vote as two values, first the term and then the candidate, with a
// transaction each: a crash in between leaves the candidate of an earlier term under the new
// one. Here the term waits in memory for its candidate, and both are written as one value.
// A folder of before that has the two, which count until the first vote.
//
// Raft panics when it can not save a term or a vote; since exit has been called by then, its
// main loop waits here for the end instead.
type raftStable struct {
	*store
	// term is that of a vote whose candidate is yet to come, 0 for none. It belongs to Raft's
	// main loop, like all saving and reading of votes.
	term uint64
}

// Set saves a value; the candidate of a vote completes it.
func (s *raftStable) Set(key, value []byte) error {
	if string(key) == keyLastVoteCand {
		if s.term == 0 {
			panic(fmt.Sprintf("BUG: a vote for %q without a term", value))
		}
		key, value = []byte(keyVote), append(binary.BigEndian.AppendUint64(nil, s.term), value...)
		s.term = 0
	}
	if err := s.store.Set(key, value); err != nil {
		select {}
	}
	return nil
}

// SetUint64 saves a number; the term of a vote is kept for its candidate.
func (s *raftStable) SetUint64(key []byte, value uint64) error {
	if string(key) == keyLastVoteTerm {
		s.term = value
		return nil
	}
	if err := s.store.SetUint64(key, value); err != nil {
		select {}
	}
	return nil
}

// Get reads a value.
func (s *raftStable) Get(key []byte) ([]byte, error) {
	if string(key) != keyLastVoteCand {
		return s.store.Get(key)
	}
	_, candidate, found, err := s.vote()
	if err != nil || found {
		return candidate, err
	}
	return s.store.Get(key)
}

// GetUint64 reads a number.
func (s *raftStable) GetUint64(key []byte) (uint64, error) {
	if string(key) != keyLastVoteTerm {
		return s.store.GetUint64(key)
	}
	term, _, found, err := s.vote()
	if err != nil || found {
		return term, err
	}
	return s.store.GetUint64(key)
}

// vote reads the last vote.
func (s *raftStable) vote() (term uint64, candidate []byte, found bool, err error) {
	v, err := s.store.Get([]byte(keyVote))
	switch {
	case errors.Is(err, errKeyNotFound):
		return 0, nil, false, nil
	case err != nil:
		return 0, nil, false, err
	case len(v) < 8:
		return 0, nil, false, fmt.Errorf("the last vote is %d bytes long", len(v))
	}
	return binary.BigEndian.Uint64(v), v[8:], true, nil
}
