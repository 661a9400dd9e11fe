package controller

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// TestCompactorKeepsTheLogBehindTheOlderSnapshot follows what it answers over some snapshots.
func TestCompactorKeepsTheLogBehindTheOlderSnapshot(t *testing.T) {
	c := newCompactor(hclog.NewNullLogger())
	c.found([]*raft.SnapshotMeta{{Index: 900, Size: 10}, {Index: 500}})
	store := func(n, size int) {
		for range n {
			c.stored([]*raft.Log{{Data: make([]byte, size)}})
		}
	}
	if store(100, 1<<10); c.isDue() || len(c.wake) > 0 {
		t.Fatal("a snapshot is due after 100 KiB")
	}
	if got := c.taken(1000, 1010, 10); got != trailingLogs {
		t.Errorf("%d small entries are kept, want %d", got, trailingLogs)
	}
	if store(130, 512<<10); !c.isDue() || len(c.wake) != 1 {
		t.Fatal("no snapshot is due after 65 MiB")
	}
	if got := c.taken(1130, 1140, 10); got < 1140-1000 || got > (1140-1000)*5/4+4 {
		t.Errorf("%d large entries are kept, want some more than the 140 since the older snapshot", got)
	}
	if got := c.taken(1130, 1140, 10); got < 1140-1000 || got > (1140-1000)*5/4+4 {
		t.Errorf("the same snapshot again: %d entries", got)
	}
	<-c.wake
	if c.isDue() {
		t.Fatal("a snapshot is due right after one")
	}
	store(130, 512<<10)
	c.postponed()
	if c.isDue() {
		t.Error("a snapshot that failed is due at once")
	}
	if store(40, 512<<10); !c.isDue() {
		t.Error("a snapshot that failed is never due again")
	}
	c.taken(1300, 1300, 200<<20)
	if store(200, 512<<10); c.isDue() {
		t.Error("a large image is written again after half its size")
	}
	if store(220, 512<<10); !c.isDue() {
		t.Error("a large image is never written again")
	}
}

// TestLargeEntriesMakeSnapshots: a node whose log grows by large entries cuts it, long before
// Raft looks at their number.
func TestLargeEntriesMakeSnapshots(t *testing.T) {
	c := newCluster(t, 1)
	c.openAll()
	n := c.leader().node
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	const limit, each = 1 << 20, 64 << 10
	n.compactor.mu.Lock()
	n.compactor.limit, n.compactor.due = limit, limit
	n.compactor.mu.Unlock()
	entry := fsm.EncodeEntry(nil, []fsm.Command{fsm.SlotCommand{Slot: 1, Epoch: 99, Seq: 1, Changes: []fsm.GroupChange{
		fsm.PutGroup{Group: &fsm.Group{ID: "g", Members: []fsm.GroupMember{{ID: "m", Assignment: make([]byte, each)}}}}}}})
	for range 6 * limit / each {
		if _, err := n.apply(ctx, entry); err != nil {
			t.Fatal(err)
		}
	}
	for {
		first, err := n.store.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		if last := n.raft.LastIndex(); last-first < 3*limit/each {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
			// What came while a snapshot was made is cut by the next one.
			if _, err := n.apply(ctx, entry); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatalf("the log still begins at %d of %d", first, n.raft.LastIndex())
		}
	}
}
