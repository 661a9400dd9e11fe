package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicHeartbeat is how often members of classic groups show that they live: the default
// of Kafka's own consumer.
const classicHeartbeat = 3 * time.Second

// crowd is many members of one group, each on a connection of its own, that do what a
// consumer's coordinator code does and read nothing. Five hundred whole clients would
// take the machine that the nodes are measured on.
type crowd struct {
	rig        *groupRig
	group      string
	partitions int
	topicID    [16]byte

	mu       sync.Mutex
	members  []*crowdMember
	joined   time.Time // when the last first request was sent; guarded by mu
	failures []error   // guarded by mu
	wg       sync.WaitGroup
}

// crowdMember is one of them.
type crowdMember struct {
	crowd *crowd
	id    string
	conn  *wireConn

	epoch int32   // generation or member epoch; guarded by crowd.mu
	owned []int32 // guarded by crowd.mu
}

// join adds n members that live until ctx ends.
func (c *crowd) join(ctx context.Context, n int, live func(*crowdMember, context.Context) error) {
	for range n {
		m := &crowdMember{crowd: c}
		c.mu.Lock()
		c.members = append(c.members, m)
		c.mu.Unlock()
		c.wg.Go(func() {
			defer m.hangUp()
			for ctx.Err() == nil {
				err := live(m, ctx)
				if err == nil || ctx.Err() != nil {
					return
				}
				m.hangUp()
				if !errors.Is(err, errAgain) {
					c.failed(err)
				}
				<-time.After(20 * time.Millisecond)
			}
		})
	}
}

// errAgain is why a member looks for its coordinator anew.
var errAgain = errors.New("the coordinator moved")

func (c *crowd) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
}

func (m *crowdMember) hangUp() {
	if m.conn != nil {
		_ = m.conn.Close()
		m.conn = nil
	}
}

// connect finds the coordinator and connects to it.
func (m *crowdMember) connect() error {
	if m.conn != nil {
		return nil
	}
	n, err := m.crowd.rig.coordinator(m.crowd.group)
	if err != nil {
		return errAgain
	}
	m.conn, err = dialWire(n.Client)
	return err
}

// sending notes that the member's first request goes now.
func (m *crowdMember) sending() {
	c := m.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined = time.Now()
}

// has notes what the member has.
func (m *crowdMember) has(epoch int32, owned []int32) {
	c := m.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	m.epoch, m.owned = epoch, owned
}

// stable tells what is missing until every partition has one member, all members have some,
// and all are at the same epoch.
func (c *crowd) stable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := map[int32]int{}
	for i, m := range c.members {
		if len(m.owned) == 0 {
			return fmt.Errorf("member %d of %d has nothing", i, len(c.members))
		}
		if m.epoch != c.members[0].epoch {
			return fmt.Errorf("members are at epochs %d and %d", m.epoch, c.members[0].epoch)
		}
		for _, p := range m.owned {
			owners[p]++
		}
	}
	for p, n := range owners {
		if n > 1 {
			return fmt.Errorf("partition %d has %d owners", p, n)
		}
	}
	if len(owners) != c.partitions {
		return fmt.Errorf("%d of %d partitions have an owner", len(owners), c.partitions)
	}
	return nil
}

// settled waits until the group is stable and returns how long that took from the last join.
func (c *crowd) settled() time.Duration {
	c.rig.t.Helper()
	c.rig.await("the group is stable", c.stable)
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) > 0 {
		c.rig.t.Errorf("%d members failed, the first with: %v", len(c.failures), c.failures[0])
	}
	return at.Sub(c.joined)
}

// retried tells whether a code means that the coordinator has moved or is moving.
func retried(code int16) error {
	err := kerr.ErrorForCode(code)
	switch {
	case errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress):
		return errAgain
	}
	return err
}

// liveClassic is the life of a member of a classic group.
func (m *crowdMember) liveClassic(ctx context.Context) error {
	if err := m.connect(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		generation, err := m.joinClassic()
		if errors.Is(err, kerr.RebalanceInProgress) {
			continue
		}
		if err != nil {
			return err
		}
		if err := m.beatClassic(ctx, generation); !errors.Is(err, kerr.RebalanceInProgress) {
			return err
		}
	}
	return nil
}

// joinClassic joins, assigns where it leads, and syncs.
func (m *crowdMember) joinClassic() (int32, error) {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.MemberID, join.ProtocolType = 9, m.crowd.group, m.id, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 45_000, 60_000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{groupTopic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", meta.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	if m.id == "" {
		m.sending()
	}
	resp, err := m.conn.ask(join)
	if err != nil {
		return 0, err
	}
	joined := resp.(*kmsg.JoinGroupResponse)
	if errors.Is(kerr.ErrorForCode(joined.ErrorCode), kerr.MemberIDRequired) {
		m.id = joined.MemberID
		return 0, kerr.RebalanceInProgress
	}
	if err := retried(joined.ErrorCode); err != nil {
		return 0, err
	}
	m.id = joined.MemberID
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 5, m.crowd.group, m.id, joined.Generation
	sync.ProtocolType, sync.Protocol = joined.ProtocolType, joined.Protocol
	if joined.LeaderID == m.id {
		sync.GroupAssignment = m.assign(joined.Members)
	}
	if resp, err = m.conn.ask(sync); err != nil {
		return 0, err
	}
	synced := resp.(*kmsg.SyncGroupResponse)
	if err := retried(synced.ErrorCode); err != nil {
		return 0, err
	}
	var got kmsg.ConsumerMemberAssignment
	if err := got.ReadFrom(synced.MemberAssignment); err != nil {
		return 0, fmt.Errorf("member assignment: %w", err)
	}
	var owned []int32
	for _, t := range got.Topics {
		owned = append(owned, t.Partitions...)
	}
	m.has(joined.Generation, owned)
	return joined.Generation, nil
}

// assign deals ranges of partitions out, as the range assignor does.
func (m *crowdMember) assign(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	slices.SortFunc(members, func(a, b kmsg.JoinGroupResponseMember) int { return cmp.Compare(a.MemberID, b.MemberID) })
	var out []kmsg.SyncGroupRequestGroupAssignment
	for i, member := range members {
		topic := kmsg.NewConsumerMemberAssignmentTopic()
		topic.Topic = groupTopic
		n := m.crowd.partitions
		for p := i * n / len(members); p < (i+1)*n/len(members); p++ {
			topic.Partitions = append(topic.Partitions, int32(p))
		}
		assignment := kmsg.NewConsumerMemberAssignment()
		assignment.Topics = append(assignment.Topics, topic)
		row := kmsg.NewSyncGroupRequestGroupAssignment()
		row.MemberID, row.MemberAssignment = member.MemberID, assignment.AppendTo(nil)
		out = append(out, row)
	}
	return out
}

// beatClassic shows that the member lives until the group says otherwise.
func (m *crowdMember) beatClassic(ctx context.Context, generation int32) error {
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, m.crowd.group, m.id, generation
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(classicHeartbeat):
		}
		resp, err := m.conn.ask(beat)
		if err != nil {
			return err
		}
		if err := retried(resp.(*kmsg.HeartbeatResponse).ErrorCode); err != nil {
			return err
		}
	}
}

// liveConsumer is the life of a member of the consumer protocol. It acknowledges each
// assignment at once and otherwise beats as often as it was last told.
func (m *crowdMember) liveConsumer(ctx context.Context) error {
	if err := m.connect(); err != nil {
		return err
	}
	epoch, owned := m.epoch, m.owned // nobody else writes them
	for ctx.Err() == nil {
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberEpoch = 1, m.crowd.group, epoch
		if epoch == 0 {
			if m.id == "" {
				m.id = rand.Text()
				m.sending()
			}
			beat.RebalanceTimeoutMillis, beat.SubscribedTopicNames = 60_000, []string{groupTopic}
			beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		} else {
			topic := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			topic.TopicID, topic.Partitions = m.crowd.topicID, owned
			beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{topic}
		}
		beat.MemberID = m.id
		resp, err := m.conn.ask(beat)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
		if err := retried(got.ErrorCode); err != nil {
			return err
		}
		pause := time.Duration(got.HeartbeatIntervalMillis) * time.Millisecond
		if got.Assignment != nil {
			owned, pause = nil, 0
			for _, t := range got.Assignment.Topics {
				owned = append(owned, t.Partitions...)
			}
		}
		epoch = got.MemberEpoch
		m.has(epoch, owned)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}
