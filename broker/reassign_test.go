package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire"
)

func TestAlterPartitionReassignmentsHandler(t *testing.T) {
	versions(wire.KeyAlterPartitionReassignments, func(v int16) {
		ts := newTestServer(t, nil)
		id, _ := ts.topic("t", nil, selfID, otherID)
		r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		r.SetVersion(v)
		r.TimeoutMillis, r.AllowReplicationFactorChange = 1000, false
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{
			{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
				{Partition: 1, Replicas: []int32{3, 1}}, {Partition: 0}, {Partition: 1, Replicas: []int32{2}}, {Partition: 2, Replicas: []int32{}}}},
			{Topic: "absent", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 7}}},
		}
		ask := func() *kmsg.AlterPartitionAssignmentsResponse {
			ts.cluster.moves = nil
			return ts.dial().ask(r).(*kmsg.AlterPartitionAssignmentsResponse)
		}
		codes := func(got *kmsg.AlterPartitionAssignmentsResponse) string {
			var out []string
			for _, t := range got.Topics {
				for _, p := range t.Partitions {
					out = append(out, fmt.Sprintf("%s-%d %s %t", t.Topic, p.Partition, wire.Code(p.ErrorCode).Name(), p.ErrorMessage != nil))
				}
			}
			return strings.Join(out, ", ")
		}
		got := ask()
		if want := "t-1 NONE false, t-0 NONE false, t-1 INVALID_REQUEST true, t-2 NONE false, absent-7 UNKNOWN_TOPIC_OR_PARTITION true"; codes(got) != want {
			t.Errorf("version %d: got %s, want %s", v, codes(got), want)
		}
		want := []controller.Move{{TP: fsm.TopicPartition{Topic: id, Partition: 1}, To: []fsm.BrokerID{3, 1}}, {TP: fsm.TopicPartition{Topic: id}, Cancel: true},
			{TP: fsm.TopicPartition{Topic: id, Partition: 2}}}
		if fmt.Sprint(ts.cluster.moves) != fmt.Sprint(want) || ts.cluster.resize != (v < 1) || got.AllowReplicationFactorChange != (v < 1) {
			t.Errorf("version %d: the controller was asked for %v, resize %t; want %v", v, ts.cluster.moves, ts.cluster.resize, want)
		}
		ts.cluster.answer = controller.TopicResult{Outcome: controller.Outcome{Err: wire.NoReassignmentInProgress, Msg: "none"}}
		if got := ask(); !strings.Contains(codes(got), "t-0 NO_REASSIGNMENT_IN_PROGRESS true") {
			t.Errorf("version %d: refused: %s", v, codes(got))
		}
		ts.cluster.err = controller.ErrNoController
		if got := ask(); !strings.Contains(codes(got), "t-0 NOT_CONTROLLER") {
			t.Errorf("version %d: without a controller: %s", v, codes(got))
		}
	})
}

func TestListPartitionReassignmentsHandler(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.image.apply(fsm.RegisterBroker{ID: 4, Folder: [16]byte{4}, Process: [16]byte{1}})
	a, _ := ts.topic("a", nil, selfID, selfID, selfID) // on 1, 2 and 3 each
	b, _ := ts.topic("b", nil, selfID)
	ts.topic("still", nil, selfID)
	move(t, ts.image.image, ts.image.apply, fsm.TopicPartition{Topic: a, Partition: 2}, 4, 1, 2)
	move(t, ts.image.image, ts.image.apply, fsm.TopicPartition{Topic: a}, 2)
	move(t, ts.image.image, ts.image.apply, fsm.TopicPartition{Topic: b}, 3, 2, 1, 4)
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	ask := func() string {
		got := ts.dial().ask(r).(*kmsg.ListPartitionReassignmentsResponse)
		out := []string{wire.Code(got.ErrorCode).Name()}
		for _, t := range got.Topics {
			for _, p := range t.Partitions {
				out = append(out, fmt.Sprintf("%s-%d %v +%v -%v", t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas))
			}
		}
		slices.Sort(out[1:])
		return strings.Join(out, ", ")
	}
	if got, want := ask(), "NONE, a-0 [2 1 3] +[] -[1 3], a-2 [4 1 2 3] +[4] -[3], b-0 [3 2 1 4] +[4] -[]"; got != want {
		t.Errorf("all: got %s, want %s", got, want)
	}
	r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "a", Partitions: []int32{2, 1, 2, 9}}, {Topic: "still", Partitions: []int32{0}}, {Topic: "absent", Partitions: []int32{0}}}
	if got, want := ask(), "NONE, a-2 [4 1 2 3] +[4] -[3]"; got != want {
		t.Errorf("some: got %s, want %s", got, want)
	}
	r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
	if got := ask(); got != "NONE" {
		t.Errorf("none: got %s", got)
	}
	ts.cluster.err = controller.ErrNoController
	if got := ask(); got != "NOT_CONTROLLER" {
		t.Errorf("without a controller: got %s", got)
	}
}

// move begins to have a partition on other nodes.
func move[R any](t testing.TB, image func() *fsm.Image, apply func(fsm.Command) R, tp fsm.TopicPartition, to ...fsm.BrokerID) {
	t.Helper()
	c, err := elect.Reassign(image(), tp, to)
	if err != nil {
		t.Fatal(err)
	}
	apply(fsm.ChangeReplicas{Items: []fsm.ReplicaChange{c}})
}

// moveAway has a partition, which node 2 leads with both in sync, on node 2 alone: what it
// takes of commands, without the controller and the leader that would propose them.
func moveAway(t testing.TB, im *published, epoch fsm.BrokerEpoch, tp fsm.TopicPartition) {
	t.Helper()
	apply := func(c fsm.Command) fsm.Result { return im.must(t, c) }
	move(t, im.Image, apply, tp, 2)
	s, _ := im.Image().Partition(tp)
	one, _ := im.Image().Broker(1)
	apply(fsm.ChangeISR{Proposer: 2, BrokerEpoch: epoch, Items: []fsm.ISRChange{{TP: tp, LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch,
		ISR: []fsm.Member{{ID: 1, Epoch: one.Epoch}, {ID: 2, Epoch: epoch}}, Confirms: true}}})
	c, ok := elect.FinishReassignment(im.Image(), tp)
	if !ok {
		s, _ := im.Image().Partition(tp)
		t.Fatalf("the reassignment cannot be completed: %+v", s)
	}
	apply(fsm.ChangeReplicas{Items: []fsm.ReplicaChange{c}})
}

// sharedTopic is one partition on nodes 1 and 2, which leads it.
func sharedTopic(id byte, name string) fsm.CreateTopic {
	return fsm.CreateTopic{ID: fsm.TopicID{id}, Name: name, Partitions: []fsm.NewPartition{{Replicas: []fsm.BrokerID{2, 1}, ISR: []fsm.BrokerID{2, 1}, Leader: 2}}}
}

// onlyUntil waits until there are no other partition folders than these, but for those on
// their way out.
func onlyUntil(t *testing.T, fsys vfs.FS, want ...string) {
	t.Helper()
	(&cluster{T: t}).until(fmt.Sprintf("the folders are %v", want), func() bool {
		return slices.Equal(slices.DeleteFunc(folders(t, fsys), func(n string) bool { return strings.HasSuffix(n, "-delete") }), want)
	})
}

func TestReplicaThatMovedAwayIsDeleted(t *testing.T) {
	fsys := vfs.NewMem(1)
	im, r := reconciling(t, fsys)
	two := im.broker(t, 2)
	tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
	im.must(t, sharedTopic(1, "t"))
	im.publish()
	(&cluster{T: t}).until("there is a replica", func() bool { return r.replicas.Get(tp) != nil })
	p := r.replicas.Get(tp)
	moveAway(t, im, two, tp)
	im.publish()
	onlyUntil(t, fsys)
	if r.replicas.Len() != 0 {
		t.Error("the replica is still served")
	}
	if _, err := p.Append(testBatch("x"), 1); !errors.Is(err, errNotLeader) {
		t.Errorf("who still has hold of it is told %v, want %v", err, errNotLeader)
	}
}

// TestReplicaIsDeletedLate: the folder cannot be renamed at first. Meanwhile the node is named
// again, or the topic is deleted and all others have confirmed that. Neither may keep the old
// log from being deleted, nor may it become the new one: it has been given up.
func TestReplicaIsDeletedLate(t *testing.T) {
	for name, again := range map[string]bool{"named again": true, "topic deleted": false} {
		t.Run(name, func(t *testing.T) {
			var stuck atomic.Bool
			var refused atomic.Int32
			fsys := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op, name string) error {
				if op == vfs.OpRename && strings.HasSuffix(name, "t-0") && stuck.Load() {
					refused.Add(1)
					return syscall.ENOSPC
				}
				return nil
			})
			im, r := reconciling(t, fsys)
			two := im.broker(t, 2)
			tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
			im.must(t, sharedTopic(1, "t"))
			im.publish()
			(&cluster{T: t}).until("there is a replica", func() bool { return r.replicas.Get(tp) != nil })
			old := r.replicas.Get(tp)
			stuck.Store(true)
			moveAway(t, im, two, tp)
			im.publish()
			(&cluster{T: t}).until("the removal was refused", func() bool { return refused.Load() > 0 })
			if again {
				move(t, im.Image, func(c fsm.Command) fsm.Result { return im.must(t, c) }, tp, 2, 1)
			} else {
				im.must(t, fsm.DeleteTopic{ID: tp.Topic})
				im.must(t, fsm.ConfirmDeleted{Broker: 2, BrokerEpoch: two, Topics: []fsm.TopicID{tp.Topic}})
			}
			im.publish()
			(&cluster{T: t}).until("that was acted on", func() bool { return r.settled() == im.Image().Index() })
			stuck.Store(false)
			if !again {
				onlyUntil(t, fsys)
				return
			}
			(&cluster{T: t}).until("there is a new replica", func() bool { p := r.replicas.Get(tp); return p != nil && p.log != old.log })
			onlyUntil(t, fsys, "t-0")
		})
	}
}

// TestFoldersOfMovedReplicasAtStart: what happened while the node was down.
func TestFoldersOfMovedReplicasAtStart(t *testing.T) {
	fsys := vfs.NewMem(1)
	im := newPublished(t)
	im.broker(t, 1)
	two := im.broker(t, 2)
	for i, name := range []string{"left", "stays"} {
		im.must(t, sharedTopic(byte(i+1), name))
	}
	dir, err := storage.OpenDir(fsys, "data", storage.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name string
		n    int32
		id   byte
	}{{"left", 0, 1}, {"stays", 0, 2}, {"stays", 7, 2}, {"other", 0, 1}} {
		if _, err := dir.Create(f.name, f.n, storage.ID{f.id}); err != nil {
			t.Fatal(err)
		}
	}
	moveAway(t, im, two, fsm.TopicPartition{Topic: fsm.TopicID{1}})
	env := &environment{self: 1, epoch: func() fsm.BrokerEpoch { return 1 }, image: im.Image, replicas: newPartitions()}
	r := newReconciler(env, im, dir, nil, nil, newKeeper(env, im, nil, hclog.NewNullLogger()), hclog.NewNullLogger())
	if err := r.adopt(im.Image()); err != nil {
		t.Fatal(err)
	}
	(&cluster{T: t}).until("the one that was left out is gone, and what nobody knows is kept", func() bool {
		names := folders(t, fsys)
		return len(names) == 3 && strings.HasPrefix(names[0], "other-0.") && strings.HasSuffix(names[0], "-stray") && names[1] == "stays-0" &&
			strings.HasPrefix(names[2], "stays-7.") && strings.HasSuffix(names[2], "-stray")
	})
	if err := dir.Close(nil); err != nil {
		t.Error(err)
	}
}

// TestReplicaThatComesAgainLacksNothing: a node was killed before its checkpoints forgot a
// replica that had moved away, and has the replica again when it starts. Of one that is being
// added nothing is missing; of a full one everything is.
func TestReplicaThatComesAgainLacksNothing(t *testing.T) {
	for name, added := range map[string]bool{"added": true, "full": false} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem(1)
			im := newPublished(t)
			im.broker(t, 1)
			two := im.broker(t, 2)
			im.must(t, sharedTopic(1, "t"))
			tp := fsm.TopicPartition{Topic: fsm.TopicID{1}}
			dir, err := storage.OpenDir(fsys, "data", storage.DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			l, err := dir.Create("t", 0, storage.ID{1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.AppendLeader(testBatch("x"), 0); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(dir.Close(nil), fsys.RemoveAll("data/t-0")); err != nil {
				t.Fatal(err)
			}
			if added {
				moveAway(t, im, two, tp)
				move(t, im.Image, func(c fsm.Command) fsm.Result { return im.must(t, c) }, tp, 2, 1)
			}
			if dir, err = storage.OpenDir(fsys, "data", storage.DefaultOptions()); err != nil {
				t.Fatal(err)
			}
			defer dir.Close(nil) //nolint:errcheck // the test is over
			env := &environment{self: 1, epoch: func() fsm.BrokerEpoch { return 1 }, image: im.Image, replicas: newPartitions()}
			r := newReconciler(env, im, dir, nil, nil, newKeeper(env, im, nil, hclog.NewNullLogger()), hclog.NewNullLogger())
			if err := r.adopt(im.Image()); err != nil {
				t.Fatal(err)
			}
			unsure := r.recall(im.Image())
			if p := r.replicas.Get(tp); len(unsure) > 0 || (p == nil) != added || p != nil && p.log.Damaged() == nil {
				t.Errorf("unsure %v, replica %v", unsure, p)
			}
		})
	}
}

// reassign asks for the replicas of a partition, none to cancel, until somebody answers.
func (o *operator) reassign(topic string, to ...fsm.BrokerID) error {
	o.Helper()
	var ids []int32
	for _, id := range to {
		ids = append(ids, int32(id))
	}
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(topic, 0, ids)
	var err error
	o.until("a controller answers", func() bool {
		var got kadm.AlterPartitionAssignmentsResponses
		if got, err = o.adm.AlterPartitionAssignments(o.ctx, req); err == nil {
			err = got[topic][0].Err
		}
		return !errors.Is(err, kerr.NotController) && !errors.Is(err, kerr.RequestTimedOut)
	})
	return err
}

// on waits until a partition has these replicas, all in sync, on every node that runs, and no
// other node has a folder of it.
func (c *cluster) on(tp fsm.TopicPartition, name string, want ...fsm.BrokerID) {
	c.Helper()
	c.until(fmt.Sprintf("the replicas are on %v", want), func() bool {
		for i, n := range c.nodes {
			if n == nil {
				continue
			}
			s, _ := n.controller.Image().Partition(tp)
			if !slices.Equal(s.Replicas, want) || s.Reassigning() || len(s.ISR) != len(want) {
				return false
			}
			found, err := filepath.Glob(filepath.Join(c.configs[i].DataDir, name+"-*"))
			if err != nil {
				c.Fatal(err)
			}
			hosts := slices.Contains(want, fsm.BrokerID(i+1))
			if hosts && n.env.replicas.Get(tp) == nil || !hosts && len(found) > 0 {
				return false
			}
		}
		return true
	})
}

// sameOn waits until the replicas on some nodes hold the same, committed to the end.
func (c *cluster) sameOn(tp fsm.TopicPartition, ids ...fsm.BrokerID) {
	c.Helper()
	c.until("the replicas are equal", func() bool {
		first := c.nodes[ids[0]-1].env.replicas.Get(tp)
		return !slices.ContainsFunc(ids, func(id fsm.BrokerID) bool {
			p := c.nodes[id-1].env.replicas.Get(tp)
			return p.log.End() != first.log.End() || p.log.HW() != first.log.End() || p.log.LastEpoch() != first.log.LastEpoch()
		})
	})
}

// quickly lets a leader confirm an ISR soon: what its members have is on the disk at once.
func quickly(_ int, cfg *Config) { cfg.FlushInterval = 10 * time.Millisecond }

// without is the nodes 1 to n but some.
func without(n int, some ...fsm.BrokerID) []fsm.BrokerID {
	var out []fsm.BrokerID
	for id := range fsm.BrokerID(n) {
		if !slices.Contains(some, id+1) {
			out = append(out, id+1)
		}
	}
	return out
}

func TestReplicasMove(t *testing.T) {
	c := newCluster(t, 5, quickly)
	o := c.operator()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	c.more(w, 50)
	replicas := c.partition(tp).Replicas
	outsider := without(4, replicas...)[0]

	// A follower goes, then the leader, and both ways the number of replicas changes.
	leader := fsm.BrokerID(c.leader(tp) + 1)
	follower := slices.DeleteFunc(slices.Clone(replicas), func(id fsm.BrokerID) bool { return id == leader })[0]
	for _, to := range [][]fsm.BrokerID{
		append(without(4, follower, outsider), outsider), without(4, leader), {1, 2, 3, 4}, {outsider, follower}, {outsider}, {outsider, leader, follower},
	} {
		if err := o.reassign("t", to...); err != nil {
			t.Fatalf("to %v: %v", to, err)
		}
		c.on(tp, "t", to...)
		c.more(w, 50)
		if s := c.partition(tp); !slices.Contains(to, s.Leader) || int(s.MinISR) != len(to)/2+1 {
			t.Errorf("on %v: %+v", to, s)
		}
	}
	c.holds("t", w.stop())
	c.sameOn(tp, outsider, leader, follower)

	for _, bad := range []struct {
		to   []fsm.BrokerID
		want error
	}{{nil, kerr.NoReassignmentInProgress}, {[]fsm.BrokerID{1, 9}, kerr.InvalidReplicaAssignment}, {[]fsm.BrokerID{1, 1}, kerr.InvalidReplicaAssignment}} {
		if err := o.reassign("t", bad.to...); !errors.Is(err, bad.want) {
			t.Errorf("to %v: %v, want %v", bad.to, err, bad.want)
		}
	}
	if err := o.reassign("absent", 1); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("of no topic: %v", err)
	}
	got, err := o.adm.AlterPartitionAssignments(kadm.ForbidAlterRf(o.ctx), kadm.AlterPartitionAssignmentsReq{"t": {0: {1, 2}}})
	if err != nil || !errors.Is(got["t"][0].Err, kerr.InvalidReplicationFactor) {
		t.Errorf("with the number of replicas to stay: %v, %v", err, got["t"][0].Err)
	}
}

// TestReplicaIsRemovedWhileItsNodeIsAway: the node finds out when it starts.
func TestReplicaIsRemovedWhileItsNodeIsAway(t *testing.T) {
	c := newCluster(t, 5, quickly)
	o := c.operator()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	c.produce("t", numbered(0, 20)...)
	leader := fsm.BrokerID(c.leader(tp) + 1)
	away := slices.DeleteFunc(slices.Clone(c.partition(tp).Replicas), func(id fsm.BrokerID) bool { return id == leader })[0]
	c.kill(int(away) - 1)
	folder := filepath.Join(c.configs[away-1].DataDir, "t-0")
	to := without(4, away)
	if err := o.reassign("t", to...); err != nil {
		t.Fatal(err)
	}
	c.on(tp, "t", to...)
	if _, err := os.Stat(folder); err != nil {
		t.Fatal(err)
	}
	c.start(int(away) - 1)
	c.on(tp, "t", to...)
	if strays, _ := filepath.Glob(filepath.Join(c.configs[away-1].DataDir, "*-stray")); len(strays) > 0 {
		t.Errorf("set aside, in place of removed: %v", strays)
	}
	c.produce("t", numbered(20, 30)...)
	if got := c.consume("t", 30); !slices.Equal(got, numbered(0, 30)) {
		t.Errorf("read %q", got)
	}
}

// TestMoveIsCancelled: a new replica that cannot catch up, since its node is away, leaves
// nothing behind.
func TestMoveIsCancelled(t *testing.T) {
	c := newCluster(t, 5, quickly)
	o := c.operator()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	before := c.partition(tp).Replicas
	outsider := without(4, before...)[0]
	c.produce("t", numbered(0, 5)...)
	c.kill(int(outsider) - 1)
	to := []fsm.BrokerID{before[0], before[1], outsider}
	if err := o.reassign("t", to...); err != nil {
		t.Fatal(err)
	}
	c.until("the partition is on the move", func() bool { return c.partition(tp).Reassigning() })
	c.produce("t", numbered(5, 10)...)
	if s := c.partition(tp); !slices.Equal(s.Adding, []fsm.BrokerID{outsider}) || !slices.Equal(s.Removing, before[2:]) || s.MinISR != 2 {
		t.Fatalf("on the move: %+v", s)
	}
	if err := o.reassign("t"); err != nil {
		t.Fatal(err)
	}
	c.on(tp, "t", before...)
	c.start(int(outsider) - 1)
	c.on(tp, "t", before...)
	c.produce("t", numbered(10, 15)...)
	if got := c.consume("t", 15); !slices.Equal(got, numbered(0, 15)) {
		t.Errorf("read %q", got)
	}
}

// TestReplicasMoveToAndFro gives each replica hardly any time between leaving and coming back,
// and kills nodes meanwhile.
func TestReplicasMoveToAndFro(t *testing.T) {
	rnd := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	c := newCluster(t, 5, quickly)
	o := c.operator()
	tp := fsm.TopicPartition{Topic: c.topic("t", 1, 3)}
	c.inSync(tp, 3)
	w := c.write("t")
	c.more(w, 20)
	var to []fsm.BrokerID
	down := -1
	for range 12 {
		to = without(4)
		rnd.Shuffle(4, func(i, j int) { to[i], to[j] = to[j], to[i] })
		to = to[:2+rnd.IntN(2)]
		if down < 0 && rnd.IntN(3) == 0 {
			down = rnd.IntN(4)
			c.kill(down)
		}
		if err := o.reassign("t", to...); err != nil && !errors.Is(err, kerr.ReassignmentInProgress) {
			t.Fatalf("to %v: %v", to, err)
		}
		if rnd.IntN(2) == 0 {
			c.more(w, 1+rnd.IntN(20))
		}
		if down >= 0 && rnd.IntN(2) == 0 {
			c.start(down)
			down = -1
		}
	}
	if down >= 0 {
		c.start(down)
	}
	to = []fsm.BrokerID{4, 2, 1}
	c.until("the last move begins", func() bool { return o.reassign("t", to...) == nil })
	c.on(tp, "t", to...)
	c.more(w, 10)
	c.holds("t", w.stop())
	c.sameOn(tp, to...)
}
