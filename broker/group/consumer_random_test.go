package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// consumerClient behaves as a client of the consumer protocol does: it tells what
// has changed since its last heartbeat, everything when an answer was lost, and
// that it owns an assignment when it has reconciled it.
type consumerClient struct {
	w        *consumerWorld
	id       string
	instance string
	topics   []string
	regex    string
	epoch    int32
	owned    map[fsm.TopicPartition]bool
	target   map[fsm.TopicPartition]bool
	told     map[fsm.TopicPartition]bool // what it said last that it owns
	ack      bool                        // a new target was not acknowledged yet
	full     bool                        // the next heartbeat says everything
	open     bool
	alive    bool
	wishes   bool // the subscription changed
}

type consumerWorld struct {
	*world
	clients []*consumerClient
	classic []*embeddedClient // in TestMigrationRandom alone
}

func (c *consumerClient) String() string { return "client " + c.id }

func (c *consumerClient) lost() { c.open, c.full = false, true }

func (c *consumerClient) answered(a group.Answer) {
	r := a.(group.ConsumerReply)
	c.open = false
	if !c.alive {
		return
	}
	switch r.Code {
	case group.None:
	case group.UnknownMember, group.FencedMemberEpoch:
		c.epoch, c.owned, c.target = 0, nil, nil
		return
	case group.CoordinatorNotAvailable, group.NotCoordinator:
		c.full = true
		return
	case group.UnreleasedInstance, group.GroupNotFound:
		return
	case group.FencedInstance: // a classic client has taken the instance over
		c.alive = len(c.w.classic) == 0
		return
	default:
		c.w.fail("%s is answered %s: %s", c, r.Code, r.Message)
	}
	m := c.w.member(c.id)
	if m == nil || m.Epoch != r.Epoch && m.Epoch != group.EpochLeaveStatic {
		c.w.fail("%s is told epoch %d, which no row says: %+v", c, r.Epoch, m)
	}
	c.epoch = r.Epoch
	if r.HasAssignment {
		next := partitionMap(r.Assignment)
		for tp := range next {
			if !contains(m.Assigned, tp) {
				c.w.fail("%s is told to take %v, which its row does not say", c, tp)
			}
		}
		c.ack = c.ack || !sameMap(next, c.target)
		c.target = next
	}
	c.w.checkOwners()
}

// reconcile takes over what was assigned.
func (c *consumerClient) reconcile() {
	if sameMap(c.owned, c.target) {
		return
	}
	c.owned = map[fsm.TopicPartition]bool{}
	for tp := range c.target {
		c.owned[tp] = true
	}
	c.w.checkOwners()
}

// heartbeat sends the next request.
func (c *consumerClient) heartbeat() group.Out {
	r := group.ConsumerRequest{MemberID: c.id, InstanceID: c.instance, ClientID: "c", ClientHost: "h", Epoch: c.epoch, RebalanceTimeout: -1}
	if c.epoch == 0 || c.full || c.wishes {
		r.Topics = append([]string{}, c.topics...)
		r.Regex = &c.regex
	}
	if c.epoch == 0 || c.full {
		r.RebalanceTimeout = time.Minute
	}
	if c.epoch == 0 {
		c.owned, c.target = nil, nil
	}
	if c.epoch == 0 || c.full || !sameMap(c.owned, c.told) || c.ack && sameMap(c.owned, c.target) {
		r.Owned = partitionList(c.owned)
		c.told = c.owned
		c.ack = c.ack && !sameMap(c.owned, c.target)
	}
	c.full, c.wishes, c.open = false, false, true
	return c.w.g.ConsumerHeartbeat(c.w.now, c.w.ask(c), r, c.w.topics)
}

// leave says farewell: for good, or a static one for a while.
func (c *consumerClient) leave(epoch int32) group.Out {
	r := group.ConsumerRequest{MemberID: c.id, InstanceID: c.instance, Epoch: epoch, RebalanceTimeout: -1}
	c.alive, c.open = false, true
	return c.w.g.ConsumerHeartbeat(c.w.now, c.w.ask(c), r, c.w.topics)
}

// checkOwners fails when two clients that are members hold one partition.
func (w *consumerWorld) checkOwners() {
	holders := map[fsm.TopicPartition]client{}
	hold := func(c client, owned map[fsm.TopicPartition]bool) {
		for tp := range owned {
			if o := holders[tp]; o != nil {
				w.fail("%s and %s hold partition %v at once", o, c, tp)
			}
			holders[tp] = c
		}
	}
	for _, c := range w.clients {
		if c.alive && c.epoch != 0 && w.member(c.id) != nil {
			hold(c, c.owned)
		}
	}
	for _, c := range w.classic {
		if c.alive && c.current() {
			hold(c, c.owned)
		}
	}
}

// TestConsumerRandom: whatever clients, answers and coordinators do, no partition
// is owned twice, and when events stop everybody has what it shall have.
func TestConsumerRandom(t *testing.T) {
	eachSeed(t, func(o *world) {
		w := &consumerWorld{world: o}
		w.setTopics()
		for range w.from(10, 150) {
			w.event()
		}
		w.calm()
	})
}

func (w *consumerWorld) setTopics() {
	clear(w.topics)
	for i := range w.from(1, 4) {
		name := fmt.Sprintf("t%d", i)
		w.topics[name] = group.Topic{ID: topicID(name), Name: name, Partitions: int32(w.from(1, 6))}
	}
}

func (w *consumerWorld) event() {
	switch n := w.from(0, 99); {
	case n < 45:
		w.act()
	case n < 65:
		w.commit(true)
	case n < 75:
		w.pass(time.Duration(w.from(1, 3000))*time.Millisecond, true)
	case n < 85:
		w.start()
	case n < 88:
		w.refuse()
	case n < 91:
		w.failover()
	case n < 93:
		w.setTopics()
	case n < 95:
		w.pass(40*time.Second, true)
	default:
		w.stop()
	}
}

// some is one of the clients that are alive, or nil.
func (w *consumerWorld) some() *consumerClient {
	var alive []*consumerClient
	for _, c := range w.clients {
		if c.alive {
			alive = append(alive, c)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[w.from(0, len(alive)-1)]
}

// act lets one client do something.
func (w *consumerWorld) act() {
	c := w.some()
	if c == nil {
		return
	}
	if w.chance(10) {
		c.subscribe()
	}
	if w.chance(60) {
		c.reconcile()
	}
	if !c.open {
		w.took(c.heartbeat(), true)
	}
}

func (c *consumerClient) subscribe() {
	c.topics, c.regex, c.wishes = nil, "", true
	for i := range 4 {
		if c.w.chance(60) {
			c.topics = append(c.topics, fmt.Sprintf("t%d", i))
		}
	}
	if c.w.chance(20) {
		c.regex = "t[0-1]"
	}
}

// start starts a client; a static one may take the place of one that stopped.
func (w *consumerWorld) start() {
	c := &consumerClient{w: w, id: w.newID(), alive: true}
	c.subscribe()
	if w.chance(50) {
		c.instance = fmt.Sprintf("i%d", w.from(0, 2))
		for _, o := range w.clients {
			if o.alive && o.instance == c.instance {
				return
			}
		}
	}
	w.clients = append(w.clients, c)
}

// stop ends a client: with a farewell, or without.
func (w *consumerWorld) stop() {
	c := w.some()
	if c == nil {
		return
	}
	switch {
	case c.open || c.epoch == 0 || w.chance(30):
		c.alive = false
	case c.instance != "" && w.chance(60):
		w.took(c.leave(group.EpochLeaveStatic), true)
	default:
		w.took(c.leave(group.EpochLeave), true)
	}
}

// calm lets everything go well, long enough for those that died to be dropped and
// for all others to have their whole target.
func (w *consumerWorld) calm() {
	w.commit(false)
	for range 60 {
		for _, c := range w.clients {
			if !c.alive {
				continue
			}
			if c.open {
				w.fail("%s has no answer though nothing is being stored", c)
			}
			c.reconcile()
			w.took(c.heartbeat(), false)
			w.commit(false)
		}
		for _, c := range w.classic {
			for range 4 { // its heartbeats come more often
				c.calm()
			}
		}
		w.pass(5*time.Second, false)
	}
	w.checkAnswered()
	w.checkShared()
}

// checkShared fails unless each partition that somebody wants is had by one client.
func (w *consumerWorld) checkShared() {
	alive := 0
	wanted := map[fsm.TopicPartition]bool{}
	for _, c := range w.clients {
		if c.alive {
			alive++
			c.wants(wanted)
		}
	}
	for _, c := range w.classic {
		if c.alive {
			alive++
			c.wants(wanted)
		}
	}
	if state := w.g.State(); alive > 0 && state != group.Stable || alive == 0 && state != group.Empty {
		w.fail("with %d clients the group ends %s: %s", alive, state, w.g.Why())
	}
	has := func(c client, owned map[fsm.TopicPartition]bool) {
		for tp := range owned {
			if !wanted[tp] {
				w.fail("%s has %v, which nobody wants or another has too", c, tp)
			}
			delete(wanted, tp)
		}
	}
	for _, c := range w.clients {
		if c.alive {
			has(c, c.owned)
		}
	}
	for _, c := range w.classic {
		if c.alive {
			has(c, c.owned)
		}
	}
	if len(wanted) > 0 {
		w.fail("nobody has %v", wanted)
	}
}

// wants adds the partitions that a client subscribes to.
func (c *consumerClient) wants(all map[fsm.TopicPartition]bool) {
	names := append([]string{}, c.topics...)
	if c.regex != "" {
		names = append(names, "t0", "t1")
	}
	for _, name := range names {
		for p := range c.w.topics[name].Partitions {
			all[fsm.TopicPartition{Topic: topicID(name), Partition: p}] = true
		}
	}
}

func partitionMap(set []fsm.TopicPartitions) map[fsm.TopicPartition]bool {
	all := map[fsm.TopicPartition]bool{}
	for _, t := range set {
		for _, p := range t.Partitions {
			all[fsm.TopicPartition{Topic: t.Topic, Partition: p}] = true
		}
	}
	return all
}

func partitionList(all map[fsm.TopicPartition]bool) []fsm.TopicPartitions {
	list := []fsm.TopicPartitions{}
	for tp := range all {
		list = append(list, fsm.TopicPartitions{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
	}
	return list
}

func sameMap(a, b map[fsm.TopicPartition]bool) bool {
	for tp := range a {
		if !b[tp] {
			return false
		}
	}
	return len(a) == len(b)
}

func contains(set []fsm.TopicPartitions, tp fsm.TopicPartition) bool { return partitionMap(set)[tp] }
