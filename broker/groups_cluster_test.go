package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/fsm"
)

// quickGroups makes the first rebalance of a group a short one, and the sessions of
// its members as long as a test waits: on a machine that is busy a client may be quiet
// for longer than a usual one, and its partitions would rightly go to another.
func quickGroups(_ int, c *Config) {
	c.Groups.InitialDelay, c.Groups.ConsumerSession = 50*time.Millisecond, patience
}

// member is a client in a group that notes what it is given and what it reads.
type member struct {
	c    *cluster
	name string
	all  *holders // what all members have; nil when nobody looks
	cl   *kgo.Client
	said clientLog
	stop context.CancelFunc
	done chan struct{}

	// committing is held from the look at what there is to commit until it is
	// committed: else of two commits the older may come last.
	committing sync.Mutex

	mu       sync.Mutex
	has      map[int32]bool // guarded by mu
	assigned int            // guarded by mu; how often partitions were given
	revoked  int            // guarded by mu; how often they were taken back
	read     []string       // guarded by mu
}

// join starts a member of group "g" that reads topic "t".
func (c *cluster) join(name string, opts ...kgo.Opt) *member {
	c.Helper()
	return c.joinAmong(nil, name, opts...)
}

// joinAmong is join of a member that is looked at together with others.
//
// Two habits of the client would make it look as if the cluster had lost a member. One
// of the consumer protocol that has nothing to commit goes on dialling a coordinator
// that is dead, until new metadata do not list it: so metadata are refreshed often. And
// automatic commits that are slower than their interval queue without bound, and a
// member that is to give partitions up commits last of all: so run commits itself.
func (c *cluster) joinAmong(all *holders, name string, opts ...kgo.Opt) *member {
	c.Helper()
	m := &member{c: c, name: name, all: all, has: map[int32]bool{}, done: make(chan struct{})}
	m.cl = c.client(append([]kgo.Opt{
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ClientID(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(patience), kgo.RebalanceTimeout(patience),
		kgo.MetadataMaxAge(time.Second), kgo.DisableAutoCommit(),
		kgo.WithLogger(&m.said), kgo.OnPartitionsAssigned(m.onAssigned), kgo.OnPartitionsRevoked(m.onCommitRevoked), kgo.OnPartitionsLost(m.onRevoked),
	}, opts...)...)
	c.members = append(c.members, m)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.run(ctx)
	c.Cleanup(func() {
		stop()
		<-m.done
	})
	return m
}

// run reads, and commits what was read, until ctx ends. A commit that is refused in a
// rebalance is made again with what is read after it, or soon if nothing is.
func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		m.poll(ctx)
		m.commit()
	}
}

// poll reads what there is, or waits for some a while.
func (m *member) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	m.cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		m.mu.Lock()
		m.read = append(m.read, string(r.Value))
		m.mu.Unlock()
	})
}

// commit commits what was read. It returns when that is done, which it reports, or refused.
func (m *member) commit() bool {
	m.committing.Lock()
	defer m.committing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := m.cl.CommitUncommittedOffsets(ctx)
	if err != nil {
		m.said.Log(kgo.LogLevelInfo, "a commit of the test failed", "err", err)
	}
	return err == nil
}

func (m *member) onAssigned(_ context.Context, _ *kgo.Client, got map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned++
	for _, p := range got["t"] {
		m.has[p] = true
	}
	m.all.take(m.name, got["t"])
}

// onCommitRevoked commits what was read of partitions before it gives them up.
func (m *member) onCommitRevoked(ctx context.Context, cl *kgo.Client, lost map[string][]int32) {
	m.commit()
	m.onRevoked(ctx, cl, lost)
}

func (m *member) onRevoked(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(lost["t"]) > 0 {
		m.revoked++
	}
	for _, p := range lost["t"] {
		delete(m.has, p)
	}
	m.all.release(m.name, lost["t"])
}

// partitions are what the member has now.
func (m *member) partitions() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []int32{}
	for p := range m.has {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (m *member) values() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.read)
}

func (m *member) rebalances() (assigned, revoked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned, m.revoked
}

// leave ends the member in order: it commits and says that it goes.
func (m *member) leave() {
	m.c.Helper()
	m.stop()
	<-m.done
	m.c.until(m.name+" has committed", m.commit)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.cl.LeaveGroupContext(ctx); err != nil {
		id, _ := m.cl.GroupMetadata()
		m.c.leaveFor(m.name, id, err)
	}
}

// leaveFor says that a member goes whose client gave up telling. It does when it twice
// asks a node that is dead for the coordinator, and then it never tries again.
func (c *cluster) leaveFor(name, id string, err error) {
	c.Helper()
	cl := c.client()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = "g"
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID = id
	req.Members = append(req.Members, one)
	c.until(fmt.Sprintf("%s has left, whose client got %v", name, err), func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), patience)
		defer cancel()
		resp, err := req.RequestWith(ctx, cl)
		return err == nil && resp.ErrorCode == 0
	})
}

// spread waits until the partitions of the topic are spread over the members as given.
func (c *cluster) spread(want []int, members ...*member) {
	c.Helper()
	c.until(fmt.Sprintf("the members have %v partitions", want), func() bool {
		var all []int32
		for i, m := range members {
			has := m.partitions()
			if len(has) != want[i] {
				return false
			}
			all = append(all, has...)
		}
		slices.Sort(all)
		return len(slices.Compact(all)) == len(all)
	})
}

// committed waits until the group has committed that many records in all.
func (c *cluster) committed(group string, want int64) {
	c.Helper()
	adm := kadm.NewClient(c.client())
	c.until(fmt.Sprintf("%d records are committed", want), func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), patience)
		defer cancel()
		offsets, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return false
		}
		var sum int64
		offsets.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
		return sum == want
	})
}

// produceTo sends values to one partition.
func (c *cluster) produceTo(topic string, partition int32, values ...string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	cl := c.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, v := range values {
		r := kgo.StringRecord(v)
		r.Partition = partition
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			c.Fatalf("produce %q to %s: %v", v, topic, err)
		}
	}
}

// coordinator is the index of the node that coordinates a group.
func (c *cluster) coordinator(group string) int {
	c.Helper()
	owner := func() fsm.BrokerID { return c.any().controller.Image().Slot(fsm.SlotOf(group)).Owner }
	c.until("there is a coordinator", func() bool { return owner() != fsm.NoBroker && c.nodes[owner()-1] != nil })
	return int(owner()) - 1
}

// Members share the topic, take over from each other, and go on where the group
// has committed.
func TestClassicGroup(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, quickGroups)
			c.topic("t", 4, 3)
			for p := range int32(4) {
				c.produceTo("t", p, fmt.Sprint("first", p))
			}
			a := c.join("a", kgo.Balancers(balancer))
			c.spread([]int{4}, a)
			c.until("the first member has read everything", func() bool { return len(a.values()) == 4 })
			b := c.join("b", kgo.Balancers(balancer))
			c.spread([]int{2, 2}, a, b)
			c.committed("g", 4)
			for p := range int32(4) {
				c.produceTo("t", p, fmt.Sprint("second", p))
			}
			c.until("both have read their parts", func() bool { return len(a.values()) == 6 && len(b.values()) == 2 })
			a.leave()
			c.spread([]int{4}, b)
			for p := range int32(4) {
				c.produceTo("t", p, fmt.Sprint("third", p))
			}
			c.until("the second member has read the rest", func() bool { return len(b.values()) == 6 })
			b.leave()
			c.committed("g", 12)
		})
	}
}

// A group survives its coordinator, killed or stopped in order, without a
// rebalance: members keep what they have and their commits go on.
func TestCoordinatorFailover(t *testing.T) {
	for name, end := range map[string]func(*cluster, int){"killed": (*cluster).kill, "stopped": (*cluster).stop} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, quickGroups)
			c.topic("t", 2, 3)
			a, b := c.join("a"), c.join("b")
			c.spread([]int{1, 1}, a, b)
			c.produceTo("t", 0, "x0")
			c.produceTo("t", 1, "y0")
			c.committed("g", 2)
			a0, ar := a.rebalances()
			b0, br := b.rebalances()
			old := c.coordinator("g")
			generation := c.generation("g")
			end(c, old)
			began := time.Now()
			c.until("another node coordinates", func() bool { return c.coordinator("g") != old })
			c.produceTo("t", 0, "x1")
			c.produceTo("t", 1, "y1")
			c.committed("g", 4)
			t.Logf("commits went on %v after the end of the coordinator", time.Since(began))
			if a1, r := a.rebalances(); a1 != a0 || r != ar {
				t.Errorf("member a was given partitions %d times more, and lost some %d times", a1-a0, r-ar)
			}
			if b1, r := b.rebalances(); b1 != b0 || r != br {
				t.Errorf("member b was given partitions %d times more, and lost some %d times", b1-b0, r-br)
			}
			if got := c.generation("g"); got != generation {
				t.Errorf("the generation went from %d to %d", generation, got)
			}
			c.remembers("g", "new member ", "taken over by this coordinator")
		})
	}
}

// remembers fails unless the coordinator of a group knows of transitions with such
// causes, in this order, and of the client behind the first.
func (c *cluster) remembers(group string, causes ...string) {
	c.Helper()
	var v groupView
	c.until("the coordinator shows the group", func() bool {
		var err error
		v, err = c.nodes[c.coordinator(group)].groups.view(group)
		return err == nil
	})
	left := causes
	for _, t := range v.history {
		if len(left) > 0 && strings.Contains(t.Cause, left[0]) {
			if len(left) == len(causes) && (t.Member == "" || t.ClientID == "" || t.ClientHost == "") {
				c.Errorf("a transition does not say who was behind it: %+v", t)
			}
			left = left[1:]
		}
	}
	if len(left) > 0 {
		c.Errorf("the history of group %s has no transition with %q after those before it: %+v", group, left[0], v.history)
	}
}

// generation is the group's epoch in the newest Image.
func (c *cluster) generation(group string) int32 {
	row, ok := c.any().controller.Image().Group(group)
	if !ok {
		return -1
	}
	return row.Epoch
}

// What a group has committed is there after all nodes have been killed and started again.
func TestOffsetsSurviveRestart(t *testing.T) {
	c := newCluster(t, 3, quickGroups)
	c.topic("t", 1, 3)
	c.produce("t", "a", "b", "c")
	m := c.join("m")
	c.until("all is read", func() bool { return len(m.values()) == 3 })
	m.leave()
	c.committed("g", 3)
	for i := range c.nodes {
		c.kill(i)
	}
	var starting sync.WaitGroup
	for i := range c.nodes {
		starting.Go(func() { c.start(i) })
	}
	starting.Wait()
	c.committed("g", 3)
	again := c.join("again")
	c.spread([]int{1}, again)
	c.produce("t", "d")
	c.until("the rest is read", func() bool { return len(again.values()) == 1 })
	c.remembers("g", "new member ", "no members are left", "new member ")
	if got := again.values(); !slices.Equal(got, []string{"d"}) {
		t.Errorf("read %q after the restart, want only what was not committed", got)
	}
}

// A group of the consumer protocol: the coordinator assigns, members reconcile,
// and a failover of the coordinator moves nothing.
func TestConsumerProtocolGroup(t *testing.T) {
	c := newCluster(t, 3, func(i int, cfg *Config) {
		quickGroups(i, cfg)
		cfg.Groups.ConsumerHeartbeat = 200 * time.Millisecond
	})
	c.topic("t", 4, 3)
	opts := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	for p := range int32(4) {
		c.produceTo("t", p, fmt.Sprint("first", p))
	}
	a := c.join("a", opts...)
	c.spread([]int{4}, a)
	c.until("the first member has read everything", func() bool { return len(a.values()) == 4 })
	b := c.join("b", opts...)
	c.spread([]int{2, 2}, a, b)
	row, _ := c.any().controller.Image().Group("g")
	if row == nil || row.Kind != fsm.ConsumerGroup {
		t.Fatalf("the group is %+v, want one of the consumer protocol", row)
	}
	for p := range int32(4) {
		c.produceTo("t", p, fmt.Sprint("second", p))
	}
	c.committed("g", 8)
	old := c.coordinator("g")
	a0, ar := a.rebalances()
	c.kill(old)
	c.until("another node coordinates", func() bool { return c.coordinator("g") != old })
	for p := range int32(4) {
		c.produceTo("t", p, fmt.Sprint("third", p))
	}
	c.committed("g", 12)
	if a1, r := a.rebalances(); a1 != a0 || r != ar {
		t.Errorf("member a was given partitions %d times more, and lost some %d times", a1-a0, r-ar)
	}
	a.leave()
	c.spread([]int{4}, b)
	b.leave()
}
