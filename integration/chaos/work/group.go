package work

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/integration/chaos/history"
)

// Protocol is how a group's members agree.
type Protocol int

// The protocols of groups.
const (
	Classic  Protocol = iota // members assign among themselves
	Consumer                 // the coordinator assigns (KIP-848)
)

// Membership says what a member of a group does.
type Membership struct {
	Group    string
	Number   history.Group
	Protocol Protocol
	Topic    *Topic
}

// moved collects the keys that a group has given and taken since the last poll.
type moved struct {
	mu    sync.Mutex
	keys  []history.Key
	topic *Topic
}

func (m *moved) add(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ps := range parts {
		for _, p := range ps {
			m.keys = append(m.keys, m.topic.Key(p))
		}
	}
}

func (m *moved) take() []history.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := m.keys
	m.keys = nil
	return keys
}

// member is one member of a group from its creation to its end. It commits what each
// poll gave before it lets the group move, as a careful application does.
func (c *Crew) member(ctx context.Context, m Membership, rnd *rand.Rand) {
	me := c.book.Process()
	move := &moved{topic: m.Topic}
	opts := append(baseOptions(c.brokers(), m.Group), kgo.ConsumeTopics(m.Topic.Name), kgo.ConsumerGroup(m.Group), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.RebalanceTimeout(20*time.Second), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(move.add), kgo.OnPartitionsRevoked(move.add), kgo.OnPartitionsLost(move.add))
	if m.Protocol == Consumer {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		c.book.Problem("%s: make a member: %v", m.Group, err)
		return
	}
	c.book.add(&history.Op{Process: me, Func: history.Subscribe, Outcome: history.OK, Invoke: c.book.Now(), Group: m.Number})
	keyOf, _ := keysOf([]*Topic{m.Topic})
	end := time.Now().Add(lifetime(rnd))
	for ctx.Err() == nil && time.Now().Before(end) {
		op := history.Op{Process: me}
		fetches := c.poll(ctx, cl, &op, m.Group, keyOf)
		op.Rebalanced = move.take()
		c.book.add(&op)
		if len(op.Polls) > 0 {
			c.commit(ctx, cl, me, m, fetches)
		}
		cl.AllowRebalance()
	}
	if rnd.IntN(2) == 0 || ctx.Err() != nil {
		leave, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_ = cl.LeaveGroupContext(leave) // one that cannot leave is as good as crashed
		cancel()
	}
	cl.CloseAllowingRebalance()
	c.book.add(&history.Op{Process: me, Func: history.Crash, Outcome: history.OK, Invoke: c.book.Now()})
}

// commit commits the positions after what was just read.
func (c *Crew) commit(ctx context.Context, cl *kgo.Client, me history.Process, m Membership, fetches kgo.Fetches) {
	_, generation := cl.GroupMetadata()
	op := history.Op{Process: me, Func: history.Commit, Outcome: history.OK, Invoke: c.book.Now(), Group: m.Number, Generation: generation}
	var last []*kgo.Record
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if n := len(p.Records); n > 0 {
			r := p.Records[n-1]
			last = append(last, r)
			op.Positions = append(op.Positions, history.Position{Key: m.Topic.Key(r.Partition), Offset: r.Offset + 1})
		}
	})
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := cl.CommitRecords(wait, last...); err != nil {
		op.Outcome = history.Info
	}
	c.book.add(&op)
}
