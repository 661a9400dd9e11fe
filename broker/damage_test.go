package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// damageAt has a partition know of damage in the middle of its log, as a read finds it.
func damageAt(p *Partition, at batch.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.corrupt = at
}

// breakByte changes the last byte of a partition's first segment.
func breakByte(t *testing.T, p *Partition) {
	t.Helper()
	path := filepath.Join(p.log.Dir(), "00000000000000000000.log")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenBatchIsNotReplicated(t *testing.T) {
	n := newFeedNet(t, 2)
	var reported atomic.Pointer[Partition]
	n.nodes[1].env.damaged = func(p *Partition) { reported.Store(p) }
	n.install(1)
	for _, v := range []string{"a", "b", "c"} {
		n.append(1, 1, v)
	}
	breakByte(t, n.p(1))
	n.install(2)
	n.until("the damage is reported", func() bool { return reported.Load() != nil })
	if reported.Load() != n.p(1) {
		t.Error("the damage of another partition was reported")
	}
	n.until("the good batches are replicated", func() bool { return n.p(2).log.End() == 2 })

	// What the controller does then: the broken replica loses its seat, the other leads.
	n.applier.must(t, fsm.ReportDamaged{Broker: 1, BrokerEpoch: n.epochs[1], Items: []fsm.TopicPartition{n.tp}})
	n.elect(2)
	n.install(2)
	n.append(2, 1, "d")
	n.install(1)
	n.equal(2, 1)
	for b := range batch.Run(n.bytes(1)).Batches() {
		if err := b.CheckCRC(); err != nil {
			t.Errorf("the batch at %d is still broken: %v", b.Base(), err)
		}
	}
}

// TestHalfABatchIsNoTroubleOfTheConnection breaks the length of a batch that a leader
// sends: what comes before arrives, and the leader finds out about its log.
func TestHalfABatchIsNoTroubleOfTheConnection(t *testing.T) {
	n := newFeedNet(t, 2)
	var reported atomic.Pointer[Partition]
	n.nodes[1].env.damaged = func(p *Partition) { reported.Store(p) }
	n.install(1)
	for _, v := range []string{"a", "b", "c"} {
		n.append(1, 1, v)
	}
	if err := n.p(1).log.Flush(); err != nil {
		t.Fatal(err)
	}
	breakLength(t, n.p(1), len(n.bytes(1))/3)
	n.install(2)
	n.until("the damage is reported", func() bool { return reported.Load() != nil })
	n.until("the good batch is replicated", func() bool { return n.p(2).log.End() == 1 })
}

// TestDamageFoundWhileServing breaks the length of a batch in the middle of a log
// that is open: a read marks the log, and after the seat is given up it is cut there
// and fetched again, by the node that led and by one that followed all the time.
func TestDamageFoundWhileServing(t *testing.T) {
	for _, broken := range []fsm.BrokerID{1, 2} {
		n := newFeedNet(t, 3)
		n.install(1, 2, 3)
		for _, v := range []string{"a", "b", "c", "d"} {
			n.append(1, -1, v)
		}
		n.until("all have everything", func() bool { return n.p(2).log.End() == 4 && n.p(3).log.End() == 4 })
		p := n.p(broken)
		var reported atomic.Pointer[Partition]
		n.nodes[broken].env.damaged = func(p *Partition) { reported.Store(p) }
		want := n.bytes(broken)
		breakLength(t, p, len(want)/4)
		if err := p.log.Flush(); err != nil { // only what was flushed is missed
			t.Fatal(err)
		}
		if r, err := p.log.Read(1, 4, len(want)/4+1); err == nil {
			r.Release()
		}
		if p.log.Damaged() == nil {
			t.Fatalf("node %d: a read over a broken length found nothing", broken)
		}
		if reported.Load() != p {
			t.Fatalf("node %d: the damage was not reported", broken)
		}
		n.install(broken) // it still has its seat: nothing is cut
		if p.log.End() != 4 {
			t.Fatalf("node %d: the log was cut to %d while the node was in the ISR", broken, p.log.End())
		}
		n.applier.must(t, fsm.ReportDamaged{Broker: broken, BrokerEpoch: n.epochs[broken], Items: []fsm.TopicPartition{n.tp}})
		leader := fsm.BrokerID(1) // in a new epoch, if it is the same
		if broken == leader {
			leader = 3
		}
		n.elect(leader)
		n.install(leader, broken)
		n.until("the damaged replica has everything again", func() bool { return p.log.Damaged() == nil && p.log.End() == 4 })
		if got := n.bytes(broken); string(got) != string(want) {
			t.Errorf("node %d: the log differs from what it was", broken)
		}
	}
}

// breakLength makes the batch at a position longer than its segment.
func breakLength(t *testing.T, p *Partition, at int) {
	t.Helper()
	path := filepath.Join(p.log.Dir(), "00000000000000000000.log")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0x20}, int64(at+8)); err != nil {
		t.Fatal(err)
	}
}

func TestBatchThatBrokeOnItsWayIsSentAgain(t *testing.T) {
	n := newFeedNet(t, 2)
	n.install(1)
	n.append(1, 1, "a")
	n.p(1).suspect(0, 0) // its log is fine: nothing is reported, or the test fails
	n.install(2)
	n.equal(1, 2)
}

func TestMinInSyncDefault(t *testing.T) {
	given := [][2]string{{"segment.bytes", "1048576"}}
	got := withMinInSync(given, 2)
	if want := [][2]string{{"segment.bytes", "1048576"}, {fsm.MinInsyncReplicas, "2"}}; !slices.Equal(got, want) {
		t.Errorf("withMinInSync = %v, want %v", got, want)
	}
	if len(given) != 1 {
		t.Error("the caller's configs were changed")
	}
	explicit := [][2]string{{fsm.MinInsyncReplicas, "1"}}
	if got := withMinInSync(explicit, 2); !slices.Equal(got, explicit) {
		t.Errorf("an explicit value became %v", got)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	for advertise, want := range map[string]string{"": "127.0.0.1:", "example.org": "example.org:", "example.org:77": "example.org:77"} {
		cfg := DefaultConfig()
		cfg.DataDir = t.TempDir()
		cfg.ClientListen, cfg.PeerListen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		cfg.Advertise = advertise
		n, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Addr(); !strings.HasPrefix(got, want) {
			t.Errorf("advertise %q: clients are told %s, want %s…", advertise, got, want)
		}
		if n.AdminAddr() == nil || !n.Ready() || n.ClusterID() == "" {
			t.Errorf("admin %v, ready %v, cluster %q", n.AdminAddr(), n.Ready(), n.ClusterID())
		}
		n.Abort()
	}
}

// TestDamageIsNotCutWithinAnEpoch finds damage in the log of a follower without a seat,
// whose leader counts where the log ends and may be about to give it one.
func TestDamageIsNotCutWithinAnEpoch(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	for range 3 {
		s.mustAppend(1, "x")
	}
	s.p.becomeFollower(2, 1, false)
	damageAt(s.p, 1)
	if anew, _ := s.p.becomeFollower(2, 1, false); anew || s.p.log.End() != 3 {
		t.Errorf("in the epoch that it follows in its log was cut to %d", s.p.log.End())
	}
	if _, whole := s.p.becomeFollower(3, 2, true); whole || s.p.log.End() != 3 {
		t.Errorf("with a seat its log was cut to %d, or it is fed: %v", s.p.log.End(), whole)
	}
	s.p.becomeFollower(fsm.NoBroker, 3, false)
	if _, whole := s.p.becomeFollower(3, 4, false); !whole || s.p.log.End() != 1 {
		t.Errorf("at the beginning of the next epoch its log ends at %d, want 1", s.p.log.End())
	}
}

// TestDiskThatFailsInACutEndsTheNode: nobody knows then what the log on the disk is.
func TestDiskThatFailsInACutEndsTheNode(t *testing.T) {
	var broken atomic.Bool
	s := newStandOn(t, vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op, _ string) error {
		if broken.Load() && op == vfs.OpTruncate {
			return syscall.EIO
		}
		return nil
	}))
	var failed error
	s.env.fail = func(err error) { failed = err }
	s.host(1, 2, 3)
	for range 3 {
		s.mustAppend(1, "x")
	}
	damageAt(s.p, 1)
	broken.Store(true)
	if _, whole := s.p.becomeFollower(2, 2, false); whole || !errors.Is(failed, storage.ErrOffline) {
		t.Errorf("the log is whole: %t; the node ended for %v", whole, failed)
	}
}

// TestDamageIsNotCutForASeat elects a node again before the report of its damage is
// in. It has a seat in the ISR, and so must keep the records behind the damage: the
// others follow what it leads with.
func TestDamageIsNotCutForASeat(t *testing.T) {
	s := newStand(t)
	s.host(1, 2, 3)
	for range 3 {
		s.mustAppend(1, "x")
	}
	damageAt(s.p, 1)
	s.elect(2)
	s.elect(1)
	if end := s.p.log.End(); end != 3 {
		t.Fatalf("the log of a leader that was elected for its seat was cut to %d", end)
	}
	s.p.giveUp(s.state().LeaderEpoch)
	if end := s.p.log.End(); end != 3 {
		t.Fatalf("a leader cut its log to %d in the middle of its epoch", end)
	}
	s.p.giveUp(s.state().LeaderEpoch + 1)
	if end := s.p.log.End(); end != 1 {
		t.Errorf("a log that has to lead with what is left ends at %d, want 1", end)
	}
}

// TestDamageThatCannotBeCutIsNotFed refuses the cut of a damaged log, as a full disk does.
// As long as the log has more than is sound nobody may hear of where it ends: an idle
// replica would be given a seat for that.
func TestDamageThatCannotBeCutIsNotFed(t *testing.T) {
	var full atomic.Bool
	var refused atomic.Int32
	fsys := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op, name string) error {
		if full.Load() && (op == vfs.OpWrite || op == vfs.OpWriteAt) && strings.Contains(name, "recovery-point") {
			refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	im, r := reconciling(t, fsys)
	im.broker(t, 2)
	tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
	im.must(t, fsm.CreateTopic{ID: tp.Topic, Name: "t", Partitions: []fsm.NewPartition{{Replicas: []fsm.BrokerID{1, 2}, ISR: []fsm.BrokerID{1, 2}, Leader: 1}}})
	im.publish()
	leads(t, r, tp)
	p := r.replicas.Get(tp)
	for i := range 3 {
		if _, err := p.log.AppendLeader(testBatch(numbered(i, i+1)...), 0); err != nil {
			t.Fatal(err)
		}
		if err := p.log.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	state := func() (role, batch.Offset) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.role, p.log.End()
	}
	if err := r.dir.Tick(); err != nil {
		t.Fatal(err)
	}
	damageAt(p, 1)
	full.Store(true)
	im.must(t, fsm.ReportDamaged{Broker: 1, BrokerEpoch: r.env.epoch(), Items: []fsm.TopicPartition{tp}})
	if s, _ := im.Image().Partition(tp); s.Leader != 2 {
		s.Leader = 2
		res := im.must(t, fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: tp, LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch, Leader: 2, ISR: []fsm.BrokerID{2}}}})
		if len(res.Skipped) > 0 {
			t.Fatal(res.Why, s)
		}
	}
	im.publish()
	until := (&cluster{T: t}).until
	n := 0
	until("the cut was refused twice, although the metadata keep changing", func() bool {
		n++
		im.must(t, fsm.CreateTopic{ID: fsm.TopicID{2, byte(n >> 8), byte(n)}, Name: fmt.Sprint("other-", n), Partitions: []fsm.NewPartition{{Replicas: []fsm.BrokerID{2}, ISR: []fsm.BrokerID{2}, Leader: 2}}})
		im.publish()
		return refused.Load() >= 2
	})
	if now, end := state(); now != roleIdle || end != 3 {
		t.Errorf("uncut it has role %d and ends at %d", now, end)
	}
	full.Store(false)
	until("it is cut and follows", func() bool { now, end := state(); return now == roleFollower && end == 1 })
}
