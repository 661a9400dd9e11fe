package controller

import (
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotBytes of entries after the last snapshot make a new one. An image that is larger
// makes it wait for as many bytes as it has: writing it must not cost more than the log.
const snapshotBytes = 64 << 20

// compactor bounds Raft's log in bytes. Problem: Raft makes a snapshot once a minute or two
// when there are many entries, and keeps a number of entries behind it, whatever their size;
// entries have up to half a megabyte and more, so its file grew without a bound that means
// anything.
//
// Invariant: the log reaches back to the snapshot before the newest, so that a newest one
// that turns out to be damaged costs nothing. Within that it holds what was written between
// the last three snapshots at most, of snapshotBytes each.
type compactor struct {
	log  hclog.Logger
	wake chan struct{} // capacity 1: a snapshot is due

	mu     sync.Mutex // leaf; guards what is below
	limit  int64      // snapshotBytes
	bytes  int64      // stored since the newest snapshot
	due    int64      // how many make the next one
	kept   int64      // stored between the newest snapshot and the one before
	newest uint64     // index of the newest snapshot
	before uint64     // index of the one before
}

func newCompactor(log hclog.Logger) *compactor {
	return &compactor{log: log, wake: make(chan struct{}, 1), limit: snapshotBytes, due: snapshotBytes}
}

// found notes the snapshots that there are at start, the newest first.
func (c *compactor) found(list []*raft.SnapshotMeta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(list) > 0 {
		c.newest, c.due = list[0].Index, max(c.limit, list[0].Size)
	}
	if len(list) > 1 {
		c.before = list[1].Index
	}
}

// entryOverhead is about what an entry takes in the store beside its data, writeBytes what a
// write takes whole multiples of.
const (
	entryOverhead = 32
	writeBytes    = 4096
)

// stored notes entries that were written at once.
func (c *compactor) stored(ls []*raft.Log) {
	var size int64
	for _, l := range ls {
		size += int64(len(l.Data)) + entryOverhead
	}
	size = (size + writeBytes - 1) / writeBytes * writeBytes
	c.mu.Lock()
	c.bytes += size
	due := c.bytes >= c.due
	c.mu.Unlock()
	if due {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// taken notes a snapshot of size bytes, and returns how many entries up to last are to be
// kept behind it.
func (c *compactor) taken(index, last uint64, size int64) (trailing uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index > c.newest {
		c.before, c.newest = c.newest, index
		c.kept, c.bytes = c.bytes, 0
	}
	c.due = max(c.limit, size)
	trailing = last - min(last, c.before)
	trailing += trailing/8 + 4 // for what arrives until the log is cut
	if c.kept < c.limit/2 {
		trailing = max(trailing, trailingLogs)
	}
	return trailing
}

// postponed puts a snapshot that could not be made off for a while.
func (c *compactor) postponed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = c.bytes + c.limit/4
}

// watchLog lets the compactor know what Raft, which has not started yet, writes and cuts.
func (n *Node) watchLog(snaps *snapshots) error {
	list, err := snaps.List()
	if err != nil {
		return fmt.Errorf("list the snapshots of the metadata: %w", err)
	}
	n.compactor.found(list)
	snaps.taken, n.store.stored = n.snapshotTaken, n.compactor.stored
	return nil
}

// compact makes snapshots when they are due, until stop closes.
func (n *Node) compact(stop <-chan struct{}) {
	for {
		select {
		case <-n.compactor.wake:
		case <-stop:
			return
		}
		if !n.compactor.isDue() {
			continue
		}
		answered := make(chan error, 1)
		if !n.goRaft(func() { answered <- n.raft.Snapshot().Error() }) {
			return
		}
		select {
		case err := <-answered:
			if err != nil {
				n.log.Warn("no snapshot of the metadata could be made, though the log is large; it is tried again later", "error", err)
				n.compactor.postponed()
			}
		case <-stop:
			return
		}
	}
}

func (c *compactor) isDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes >= c.due
}

// snapshotTaken sets how many entries Raft keeps when it cuts its log next, which it does
// right after a snapshot.
func (n *Node) snapshotTaken(index uint64, size int64) {
	c := n.raft.ReloadableConfig()
	c.TrailingLogs = n.compactor.taken(index, n.raft.LastIndex(), size)
	if err := n.raft.ReloadConfig(c); err != nil {
		n.log.Error("Raft does not take another number of entries to keep", "entries", c.TrailingLogs, "error", err)
	}
}
