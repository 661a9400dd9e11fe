package controller

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/wal"
)

// loggedEntry is what two logs have to agree on at an index.
type loggedEntry struct {
	term uint64
	kind raft.LogType
	sum  uint32
}

func loggedOf(l *raft.Log) loggedEntry {
	return loggedEntry{term: l.Term, kind: l.Type, sum: crc32.Update(crc32.ChecksumIEEE(l.Data), crc32.IEEETable, l.Extensions)}
}

// loggedEntries is one log: its entries from an index on.
type loggedEntries struct {
	first   uint64
	entries []loggedEntry
}

func (l loggedEntries) last() uint64 { return l.first + uint64(len(l.entries)) - 1 }

func (l loggedEntries) at(index uint64) loggedEntry { return l.entries[index-l.first] }

// matchLogs compares two logs over the range they share, and returns how many entries are the
// same in both. Where both have an entry of one term they must be the same up to there; and up to
// settled, which both are known to have, in any case.
func matchLogs(a, b loggedEntries, settled uint64) (same int, err error) {
	from, to := max(a.first, b.first), min(a.last(), b.last())
	for to >= from && to > settled && a.at(to).term != b.at(to).term {
		to--
	}
	for i := from; i <= to; i++ {
		if a.at(i) != b.at(i) {
			return same, fmt.Errorf("at index %d one log has %+v, the other %+v", i, a.at(i), b.at(i))
		}
		same++
	}
	return same, nil
}

// TestMatchLogs shows that logs which do not match are told.
func TestMatchLogs(t *testing.T) {
	terms := func(first uint64, terms ...uint64) loggedEntries {
		l := loggedEntries{first: first}
		for i, term := range terms {
			l.entries = append(l.entries, loggedEntry{term: term, sum: uint32(first) + uint32(i)})
		}
		return l
	}
	other := terms(1, 1, 1, 2, 2)
	other.entries[1].sum++
	kind := terms(1, 1, 1, 2, 2)
	kind.entries[2].kind = raft.LogNoop
	for name, c := range map[string]struct {
		a, b    loggedEntries
		settled uint64
		same    int
		ok      bool
	}{
		"equal":                               {terms(1, 1, 1, 2, 2), terms(1, 1, 1, 2, 2), 4, 4, true},
		"one begins later":                    {terms(1, 1, 1, 2, 2), terms(3, 2, 2, 2), 4, 2, true},
		"nothing in common":                   {terms(1, 1, 1), terms(7, 2), 0, 0, true},
		"another tail":                        {terms(1, 1, 1, 2), terms(1, 1, 1, 3, 3), 2, 2, true},
		"another tail of what is settled":     {terms(1, 1, 1, 2), terms(1, 1, 1, 3, 3), 3, 2, false},
		"other data":                          {terms(1, 1, 1, 2, 2), other, 0, 1, false},
		"another type":                        {terms(1, 1, 1, 2, 2), kind, 0, 2, false},
		"other terms below one that is equal": {terms(1, 1, 2, 4), terms(1, 1, 3, 4), 0, 1, false},
	} {
		same, err := matchLogs(c.a, c.b, c.settled)
		if same != c.same || (err == nil) != c.ok {
			t.Errorf("%s: %d are the same, %v; want %d, and whether they match %v", name, same, err, c.same, c.ok)
		}
	}
}

// stored notes what a node's log got.
func (f *fire) stored(id raft.ServerID, ls []*raft.Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range ls {
		is, sum := [2]uint64{l.Index, l.Term}, loggedOf(l).sum^uint32(l.Type)<<24
		if old, ok := f.written[is]; ok && old != sum {
			f.t.Errorf("node %s stores another entry at index %d of term %d than was stored there before", id, l.Index, l.Term)
		}
		f.written[is] = sum
	}
}

// quiet ends the commands, and waits until the logs of all members end at one index, which it
// returns. The leader hands over first, so that there are entries of two terms to compare, and one
// that no machine is given.
func (f *fire) quiet() (last uint64) {
	f.transfer(f.leader())
	f.hush()
	members := f.members()
	eventually(f.t, "all logs end alike", func() bool {
		f.reviveExited()
		var first raft.Log
		for i, n := range members {
			var newest raft.Log
			end, err := n.store.LastIndex()
			if err != nil || n.store.GetLog(end, &newest) != nil {
				return false
			}
			if i == 0 {
				first = newest
			}
			if newest.Index != first.Index || newest.Term != first.Term {
				return false
			}
		}
		last = first.Index
		return true
	})
	f.settled = members
	return last
}

// compareLogs compares the logs that ended processes left on their disks: each with each other.
// Those who were members have all up to last.
func (f *fire) compareLogs(last uint64) {
	logs := map[raft.ServerID]loggedEntries{}
	for _, n := range f.nodes {
		l, err := n.readLog()
		if err != nil {
			f.t.Errorf("node %s: %v", n.id, err)
			return
		}
		logs[n.id] = l
	}
	for _, n := range f.settled {
		if got := logs[n.id].last(); got < last {
			f.t.Errorf("the log of node %s ends at %d, and had ended at %d", n.id, got, last)
		}
	}
	for i, a := range f.nodes {
		for _, b := range f.nodes[i+1:] {
			settled := uint64(0)
			if slices.Contains(f.settled, a) && slices.Contains(f.settled, b) {
				settled = last
			}
			same, err := matchLogs(logs[a.id], logs[b.id], settled)
			if err != nil {
				f.t.Errorf("the logs of nodes %s and %s: %v", a.id, b.id, err)
			}
			f.did["stored entries compared"] += same
		}
	}
}

// readLog reads what the disk of an ended process has.
func (n *fireNode) readLog() (out loggedEntries, err error) {
	db, err := wal.Open(n.logFS, fireLogDir, fireSegment)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	first, err := db.FirstIndex()
	if err != nil {
		return out, err
	}
	last, err := db.LastIndex()
	if err != nil {
		return out, err
	}
	out.first = max(first, 1) // 0 is that of an empty log
	for i := out.first; i <= last; i++ {
		var l raft.Log
		if err := db.GetLog(i, &l); err != nil {
			return out, fmt.Errorf("read entry %d: %w", i, err)
		}
		out.entries = append(out.entries, loggedOf(&l))
	}
	return out, nil
}
