package group_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// embeddedClient behaves as a classic consumer does: it speaks the classic protocol,
// with the consumers' own format in it, and assigns when it is told to lead. An eager
// one gives everything up before it joins; a cooperative one keeps what it has, gives
// up what its next assignment lacks, and joins again.
type embeddedClient struct {
	w        *consumerWorld
	id       string
	instance string
	coop     bool
	version  int16
	known    bool
	topics   []string
	phase    string
	gen      int32
	members  []group.JoinMember
	leads    bool
	seen     uint64 // the version of the topics that it assigned last
	owned    map[fsm.TopicPartition]bool
	open     bool
	alive    bool
}

func (c *embeddedClient) String() string {
	return fmt.Sprintf("classic client %q (%s)", c.id, c.instance)
}

func (c *embeddedClient) lost() {
	c.open = false
	if c.phase != "member" {
		c.phase = "join"
	}
}

// current says that the client may commit: the row has it, in its generation.
func (c *embeddedClient) current() bool {
	m := c.w.member(c.id)
	if m == nil {
		return false
	}
	if m.Epoch == 0 && c.w.row.Kind == fsm.ClassicGroup {
		return c.gen == c.w.row.Epoch
	}
	return c.gen == m.Epoch
}

func (c *embeddedClient) answered(a group.Answer) {
	c.open = false
	if !c.alive {
		return
	}
	switch r := a.(type) {
	case group.JoinReply:
		if !c.failed(r.Code, r.MemberID) {
			c.id, c.gen, c.phase, c.members, c.leads = r.MemberID, r.Generation, "sync", r.Members, r.Leader == r.MemberID
			if m := c.w.member(c.id); m == nil {
				c.w.fail("%s is told that it is a member, which no row says", c)
			}
		}
	case group.SyncReply:
		if !c.failed(r.Code, c.id) {
			c.synced(assignedOf(r.Assignment))
		}
	case group.HeartbeatReply:
		c.failed(r.Code, c.id)
	}
	c.w.checkOwners()
}

// synced takes an assignment over.
func (c *embeddedClient) synced(next map[fsm.TopicPartition]bool) {
	if m := c.w.member(c.id); m != nil && c.w.row.Kind == fsm.ConsumerGroup && m.Epoch == c.gen {
		for tp := range next {
			if !contains(m.Assigned, tp) {
				c.w.fail("%s is told to take %v, which its row does not say", c, tp)
			}
		}
	}
	c.phase = "member"
	for tp := range c.owned {
		if !next[tp] {
			c.phase = "join" // to tell that it has given it up
		}
	}
	c.owned = next
}

// failed does what a client does about an error.
func (c *embeddedClient) failed(code group.Code, id string) bool {
	switch code {
	case group.None:
		return false
	case group.MemberIDRequired:
		c.id = id
	case group.UnknownMember:
		c.id, c.owned = "", nil
	case group.IllegalGeneration:
		c.owned = nil
	case group.FencedInstance:
		c.alive = false
	case group.RebalanceInProgress:
	case group.CoordinatorNotAvailable, group.NotCoordinator:
		if c.phase == "member" {
			return true
		}
	default:
		c.w.fail("%s is answered %s", c, code)
	}
	c.phase = "join"
	return true
}

// act sends the next request.
func (c *embeddedClient) act() group.Out {
	if c.phase == "member" && c.leads && c.seen != c.w.topics.Version() {
		c.phase = "join"
	}
	t := c.w.ask(c)
	c.open = true
	switch c.phase {
	case "sync":
		r := group.SyncRequest{MemberID: c.id, InstanceID: c.instance, Generation: c.gen, Protocol: c.protocol()}
		if c.leads {
			c.seen = c.w.topics.Version()
			r.Assignments = c.assign()
		}
		return c.w.g.Sync(c.w.now, t, r, c.w.topics)
	case "member":
		return c.w.g.Heartbeat(c.w.now, t, group.HeartbeatRequest{MemberID: c.id, InstanceID: c.instance, Generation: c.gen}, c.w.topics)
	}
	if !c.coop {
		c.owned = nil
	}
	return c.w.g.Join(c.w.now, t, group.JoinRequest{
		MemberID: c.id, InstanceID: c.instance, NewID: c.w.newID(), SessionTimeout: 10 * time.Second, RebalanceTimeout: 12 * time.Second, ProtocolType: "consumer",
		Protocols: []fsm.GroupProtocol{{Name: c.protocol(), Metadata: c.metadata()}}, KnownIDRequired: c.known,
	}, c.w.topics)
}

func (c *embeddedClient) protocol() string {
	if c.coop {
		return "cooperative"
	}
	return "eager"
}

// metadata is what it says about itself.
func (c *embeddedClient) metadata() []byte {
	p := binary.BigEndian.AppendUint16(nil, uint16(c.version))
	p = binary.BigEndian.AppendUint32(p, uint32(len(c.topics)))
	for _, t := range c.topics {
		p = appendText(p, t)
	}
	p = binary.BigEndian.AppendUint32(p, 1<<32-1) // no bytes of the assignor
	if c.version >= 1 {
		p = appendNamed(p, c.owned)
	}
	if c.version >= 2 {
		p = binary.BigEndian.AppendUint32(p, uint32(c.gen))
	}
	if c.version >= 3 {
		p = appendText(p, "rack")
	}
	return p
}

func appendText(p []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(p, uint16(len(s))), s...)
}

func appendNamed(p []byte, set map[fsm.TopicPartition]bool) []byte {
	byName := map[string][]int32{}
	for tp := range set {
		name := nameOf(tp.Topic)
		byName[name] = append(byName[name], tp.Partition)
	}
	p = binary.BigEndian.AppendUint32(p, uint32(len(byName)))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		p = appendText(p, name)
		p = binary.BigEndian.AppendUint32(p, uint32(len(byName[name])))
		for _, n := range byName[name] {
			p = binary.BigEndian.AppendUint32(p, uint32(n))
		}
	}
	return p
}

func nameOf(id fsm.TopicID) string {
	n := 0
	for n < len(id) && id[n] != 0 {
		n++
	}
	return string(id[:n])
}

// embeddedText reads the format again, as far as these clients write it.
type embeddedText struct{ p []byte }

func (r *embeddedText) number(n int) (v int) {
	for _, b := range r.p[:n] {
		v = v<<8 | int(b)
	}
	r.p = r.p[n:]
	return v
}

func (r *embeddedText) text() string {
	n := r.number(2)
	s := string(r.p[:n])
	r.p = r.p[n:]
	return s
}

func (r *embeddedText) partitions() map[fsm.TopicPartition]bool {
	all := map[fsm.TopicPartition]bool{}
	for range r.number(4) {
		id := topicID(r.text())
		for range r.number(4) {
			all[fsm.TopicPartition{Topic: id, Partition: int32(r.number(4))}] = true
		}
	}
	return all
}

func assignedOf(p []byte) map[fsm.TopicPartition]bool {
	if len(p) == 0 {
		return map[fsm.TopicPartition]bool{}
	}
	r := embeddedText{p}
	r.number(2)
	return r.partitions()
}

// wish is what a leader knows of a member.
type wish struct {
	id     string
	topics []string
	owned  map[fsm.TopicPartition]bool
	gen    int
}

func (c *embeddedClient) wishOf(m group.JoinMember) wish {
	r := embeddedText{m.Metadata}
	version := r.number(2)
	w := wish{id: m.ID}
	for range r.number(4) {
		w.topics = append(w.topics, r.text())
	}
	r.number(4)
	if version >= 1 {
		w.owned = r.partitions()
	}
	if version >= 2 {
		w.gen = r.number(4)
	}
	return w
}

// assign deals the partitions out. A cooperative leader leaves those out that another
// member still has.
func (c *embeddedClient) assign() []group.MemberAssignment {
	var wishes []wish
	for _, m := range c.members {
		wishes = append(wishes, c.wishOf(m))
	}
	given := make([]map[fsm.TopicPartition]bool, len(wishes))
	for i := range given {
		given[i] = map[fsm.TopicPartition]bool{}
	}
	turn := 0
	for _, name := range slices.Sorted(maps.Keys(c.w.topics)) {
		for p := range c.w.topics[name].Partitions {
			tp := fsm.TopicPartition{Topic: topicID(name), Partition: p}
			for range wishes {
				turn = (turn + 1) % len(wishes)
				if !slices.Contains(wishes[turn].topics, name) {
					continue
				}
				if o := holder(wishes, tp); !c.coop || o < 0 || o == turn {
					given[turn][tp] = true
				}
				break
			}
		}
	}
	var out []group.MemberAssignment
	for i, w := range wishes {
		p := appendNamed([]byte{0, 1}, given[i])
		out = append(out, group.MemberAssignment{MemberID: w.id, Assignment: binary.BigEndian.AppendUint32(p, 0)})
	}
	return out
}

// holder is who said in the newest generation that it has a partition; -1 for nobody.
func holder(wishes []wish, tp fsm.TopicPartition) int {
	best := -1
	for i, w := range wishes {
		if w.owned[tp] && (best < 0 || w.gen > wishes[best].gen) {
			best = i
		}
	}
	return best
}

// wants adds the partitions that it subscribes to.
func (c *embeddedClient) wants(all map[fsm.TopicPartition]bool) {
	for _, name := range c.topics {
		for p := range c.w.topics[name].Partitions {
			all[fsm.TopicPartition{Topic: topicID(name), Partition: p}] = true
		}
	}
}

// calm acts when nothing fails.
func (c *embeddedClient) calm() {
	if c.alive && !c.open {
		c.w.took(c.act(), false)
		c.w.commit(false)
	}
}

// migrationWorld has clients of both protocols, which come and go.
type migrationWorld struct {
	*consumerWorld
	coop bool // how its classic clients rebalance
}

// TestMigrationRandom: while clients are exchanged for ones of the other protocol,
// answers are lost and coordinators replaced, no partition is held by two clients
// that could commit it; when events stop each is held by one, and the group is of
// the kind that its clients ask for.
func TestMigrationRandom(t *testing.T) {
	moved := map[fsm.GroupKind]int{}
	eachSeed(t, func(o *world) {
		w := &migrationWorld{consumerWorld: &consumerWorld{world: o}, coop: o.chance(60)}
		w.setTopics()
		kind := w.g.Describe().Kind
		for range w.from(20, 250) {
			w.event()
			if d := w.g.Describe(); d.Kind != kind && len(d.Members) > 0 {
				moved[d.Kind]++
				kind = d.Kind
			}
		}
		w.calm()
		w.checkKind()
	})
	t.Logf("moves: %v", moved)
	if *oneSeed == 0 && *runs >= 100 && min(moved[fsm.ClassicGroup], moved[fsm.ConsumerGroup]) < *runs/10 {
		t.Errorf("the runs hold too few moves to mean much: %v", moved)
	}
}

func (w *migrationWorld) event() {
	switch n := w.from(0, 99); {
	case n < 25:
		w.act()
	case n < 52:
		w.actClassic()
	case n < 70:
		w.commit(true)
	case n < 78:
		w.pass(time.Duration(w.from(1, 3000))*time.Millisecond, true)
	case n < 82:
		w.start()
	case n < 87:
		w.startClassic()
	case n < 88:
		w.refuse()
	case n < 91:
		w.failover()
	case n < 92:
		w.growTopics()
	case n < 93:
		w.pass(9*time.Second, true)
	case n < 97:
		w.stop()
	default:
		w.stopClassic()
	}
	w.checkOwners()
}

// growTopics makes a topic, or gives one more partitions.
func (w *migrationWorld) growTopics() {
	name := fmt.Sprintf("t%d", w.from(0, 3))
	t := w.topics[name]
	w.topics[name] = group.Topic{ID: topicID(name), Name: name, Partitions: t.Partitions + int32(w.from(1, 3))}
}

// someClassic is one of the classic clients that are alive, or nil.
func (w *migrationWorld) someClassic() *embeddedClient {
	alive := slices.DeleteFunc(slices.Clone(w.classic), func(c *embeddedClient) bool { return !c.alive })
	if len(alive) == 0 {
		return nil
	}
	return alive[w.from(0, len(alive)-1)]
}

func (w *migrationWorld) actClassic() {
	c := w.someClassic()
	if c == nil || c.open {
		return
	}
	if w.chance(5) {
		c.subscribe()
	}
	w.took(c.act(), true)
}

func (c *embeddedClient) subscribe() {
	c.topics, c.phase = nil, "join"
	for i := range 4 {
		if c.w.chance(60) {
			c.topics = append(c.topics, fmt.Sprintf("t%d", i))
		}
	}
}

// startClassic starts a classic client; a static one may take the place of one of
// either protocol.
func (w *migrationWorld) startClassic() {
	c := &embeddedClient{w: w.consumerWorld, coop: w.coop, version: int16(w.from(0, 3)), known: w.chance(70), alive: true}
	if c.coop {
		c.version = int16(w.from(2, 3))
	}
	c.subscribe()
	if w.chance(40) {
		c.instance = fmt.Sprintf("i%d", w.from(0, 2))
		if slices.ContainsFunc(w.clients, func(o *consumerClient) bool { return o.alive && o.instance == c.instance }) {
			return
		}
	}
	w.classic = append(w.classic, c)
}

func (w *migrationWorld) stopClassic() {
	c := w.someClassic()
	if c == nil {
		return
	}
	if !c.open && c.id != "" && w.chance(60) {
		c.open = true
		w.took(w.g.Leave(w.now, w.ask(c), group.LeaveRequest{Members: []group.LeaveMember{{MemberID: c.id, InstanceID: c.instance}}}), true)
	}
	c.alive = false
}

// checkKind fails when the group is not of the kind that is left.
func (w *migrationWorld) checkKind() {
	alive := 0
	for _, c := range w.clients {
		if c.alive {
			alive++
		}
	}
	d := w.g.Describe()
	if len(d.Members) > 0 && (d.Kind == fsm.ConsumerGroup) != (alive > 0) {
		w.fail("with %d clients of the consumer protocol among %d the group ends as kind %d: %s", alive, len(d.Members), d.Kind, w.g.Why())
	}
}
