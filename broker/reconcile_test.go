package broker

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
)

// published gives the applier's Images to a reconciler.
type published struct {
	*applier
	changed atomic.Pointer[chan struct{}]
}

func newPublished(t *testing.T) *published {
	p := &published{applier: newApplier(t)}
	c := make(chan struct{})
	p.changed.Store(&c)
	return p
}

func (p *published) Changed() <-chan struct{} { return *p.changed.Load() }

// publish wakes the reconciler.
func (p *published) publish() {
	c := make(chan struct{})
	close(*p.changed.Swap(&c))
}

// nobody is a cluster of which no node answers.
type nobody struct{}

func (nobody) DialFeed(context.Context, fsm.BrokerID) (net.Conn, error) { return nil, io.EOF }
func (nobody) ReportRefused(fsm.BrokerID)                               {}

// reconciling is node 1 of a cluster of one with a running reconciler over fsys.
func reconciling(t *testing.T, fsys vfs.FS) (*published, *reconciler) {
	im := newPublished(t)
	return im, reconcilingFrom(t, im, fsys, func() {})
}

// reconcilingFrom starts with what im holds; between runs after the folders were
// adopted and before roles are given.
func reconcilingFrom(t *testing.T, im *published, fsys vfs.FS, between func()) *reconciler {
	epoch := im.broker(t, 1)
	o := storage.DefaultOptions()
	o.FlushInterval, o.CheckpointInterval = 0, time.Nanosecond
	dir, err := storage.OpenDir(fsys, "data", o)
	if err != nil {
		t.Fatal(err)
	}
	env := &environment{
		self: 1, epoch: func() fsm.BrokerEpoch { return epoch }, image: im.Image, now: time.Now, lagMax: time.Minute,
		log: hclog.NewNullLogger(), fresh: func() bool { return true }, bootTime: time.Now,
		fail:    func(err error) { t.Errorf("the node failed: %v", err) },
		metrics: &newMetrics().replicas, live: liveIn(im.Image), replicas: newPartitions(),
	}
	env.ticks = newTicks(env.now, func(p *Partition, now time.Time) { p.tick(now) })
	env.changes = newChanges(env, im, hclog.NewNullLogger())
	keeper := newKeeper(env, im, func(uint64) error { return nil }, hclog.NewNullLogger())
	follows := newFollows(env, nobody{}, &buffers{}, time.Second, hclog.NewNullLogger())
	feeders := newFeeders(env, time.Second, time.Second, hclog.NewNullLogger())
	r := newReconciler(env, im, dir, follows, feeders, keeper, hclog.NewNullLogger())
	if err := r.adopt(im.Image()); err != nil {
		t.Fatal(err)
	}
	between()
	r.start(im.Image())
	ctx, cancel := context.WithCancel(context.Background())
	go r.run(ctx)
	go keeper.run(ctx)
	go env.changes.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-r.done
		<-keeper.done
		<-env.changes.done
		follows.close()
		env.ticks.close()
		if err := dir.Close(nil); err != nil {
			t.Errorf("close the folder: %v", err)
		}
	})
	return r
}

func soleTopic(id byte, partitions int) fsm.CreateTopic {
	c := fsm.CreateTopic{ID: fsm.TopicID{id}, Name: "t"}
	for range partitions {
		c.Partitions = append(c.Partitions, fsm.NewPartition{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1})
	}
	return c
}

// leads waits until the node leads a partition.
func leads(t *testing.T, r *reconciler, tp fsm.TopicPartition) {
	t.Helper()
	(&cluster{T: t}).until("the partition is led", func() bool {
		p := r.replicas.Get(tp)
		if p == nil {
			return false
		}
		leader, _ := p.Leader()
		return leader == 1
	})
}

func folders(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	entries, err := fsys.ReadDir("data")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestFoldersAreMadeAgainAfterAFailure(t *testing.T) {
	var refuse atomic.Int32
	refuse.Store(3)
	fsys := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op, name string) error {
		if op == vfs.OpMkdir && strings.Contains(name, "t-") && refuse.Add(-1) >= 0 {
			return syscall.ENOSPC
		}
		return nil
	})
	im, r := reconciling(t, fsys)
	im.must(t, soleTopic(1, 5))
	im.publish()
	for i := range int32(5) {
		leads(t, r, fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: i})
	}
	if refuse.Load() >= 0 {
		t.Error("no folder was refused: the test tests nothing")
	}
}

func TestNameOfAnUnknownTopicIsFreed(t *testing.T) {
	fsys := vfs.NewMem(1)
	im, r := reconciling(t, fsys)
	// A folder that appears at run time under a name that is then used.
	if _, err := r.dir.Create("t", 0, storage.ID{99}); err != nil {
		t.Fatal(err)
	}
	im.must(t, soleTopic(1, 1))
	im.publish()
	leads(t, r, fsm.TopicPartition{Topic: fsm.TopicID{1}})
	names := folders(t, fsys)
	if len(names) != 2 || names[0] != "t-0" || !strings.HasSuffix(names[1], "-stray") {
		t.Errorf("folders %v, want t-0 and the older one set aside", names)
	}
}

func TestDeletedTopicIsConfirmedWhenItsFoldersAreGone(t *testing.T) {
	fsys := vfs.NewMem(1)
	im, r := reconciling(t, fsys)
	im.must(t, soleTopic(1, 40))
	im.publish()
	leads(t, r, fsm.TopicPartition{Topic: fsm.TopicID{1}, Partition: 39})
	im.must(t, fsm.DeleteTopic{ID: fsm.TopicID{1}})
	im.must(t, soleTopic(2, 2))
	im.publish()
	leads(t, r, fsm.TopicPartition{Topic: fsm.TopicID{2}, Partition: 1})
	(&cluster{T: t}).until("the deletion is confirmed", func() bool {
		_, buried := im.Image().Tombstone(fsm.TopicID{1})
		return !buried
	})
	for _, l := range r.dir.Logs() {
		if l.ID() != (storage.ID{2}) {
			t.Errorf("the log %s of the deleted topic is still there", l.Dir())
		}
	}
	if got := r.replicas.Len(); got != 2 {
		t.Errorf("%d replicas are served, want 2", got)
	}
}

// TestTopicDeletedDuringStart: the folder was adopted by an Image that had the
// topic, and roles are given by one that has only its tombstone.
func TestTopicDeletedDuringStart(t *testing.T) {
	fsys := vfs.NewMem(1)
	im := newPublished(t)
	im.broker(t, 1)
	im.must(t, soleTopic(1, 1))
	dir, err := storage.OpenDir(fsys, "data", storage.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Create("t", 0, storage.ID{1}); err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := reconcilingFrom(t, im, fsys, func() { im.must(t, fsm.DeleteTopic{ID: fsm.TopicID{1}}) })
	(&cluster{T: t}).until("the folder is on its way out and its deletion confirmed", func() bool {
		_, pending := im.Image().Tombstone(fsm.TopicID{1})
		names := folders(t, fsys)
		return !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "t-0") && !strings.HasSuffix(n, "-delete") }) &&
			!pending && r.replicas.Len() == 0
	})
}

func TestTombstoneAtStartDeletesTheFolder(t *testing.T) {
	fsys := vfs.NewMem(1)
	im := newPublished(t)
	epoch := im.broker(t, 1)
	im.must(t, soleTopic(1, 1))
	im.must(t, fsm.DeleteTopic{ID: fsm.TopicID{1}})
	dir, err := storage.OpenDir(fsys, "data", storage.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close(nil) //nolint:errcheck // the test is over
	for name, id := range map[string]byte{"t": 1, "other": 7} {
		if _, err := dir.Create(name, 0, storage.ID{id}); err != nil {
			t.Fatal(err)
		}
	}
	env := &environment{self: 1, epoch: func() fsm.BrokerEpoch { return epoch }, image: im.Image, replicas: newPartitions()}
	keeper := newKeeper(env, im, nil, hclog.NewNullLogger())
	r := newReconciler(env, im, dir, nil, nil, keeper, hclog.NewNullLogger())
	if err := r.adopt(im.Image()); err != nil {
		t.Fatal(err)
	}
	if keeper.idle() {
		t.Error("the deletion is not going to be confirmed")
	}
	(&cluster{T: t}).until("the buried folder is gone and the unknown one is kept aside", func() bool {
		names := folders(t, fsys)
		return len(names) == 1 && strings.HasPrefix(names[0], "other-0") && strings.HasSuffix(names[0], "-stray")
	})
}
