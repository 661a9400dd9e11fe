package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
)

// shares is what the leader of a classic group gives out: share 0 to shares-1.
const shares = 7

// classicClient behaves as a client of the classic protocol does.
type classicClient struct {
	w        *classicWorld
	id       string
	instance string
	topics   []string
	known    bool // its version asks for an id first
	skip     bool // its version knows the flag SkipAssignment
	phase    string
	gen      int32
	best     int32 // the highest generation that it was told
	members  []group.JoinMember
	has      string // its assignment: "generation/share share …"
	open     bool
	alive    bool
}

type classicWorld struct {
	*world
	clients []*classicClient
	leaders map[int32]string // generation -> who was told to assign it
}

func (c *classicClient) String() string { return fmt.Sprintf("client %q (%s)", c.id, c.instance) }

func (c *classicClient) lost() {
	c.open = false
	if c.phase != "member" {
		c.phase = "join"
	}
}

func (c *classicClient) answered(a group.Answer) {
	c.open = false
	if !c.alive {
		return
	}
	switch r := a.(type) {
	case group.JoinReply:
		if c.failed(r.Code, r.MemberID) {
			return
		}
		c.joined(r)
	case group.SyncReply:
		if c.failed(r.Code, c.id) {
			return
		}
		c.phase, c.has = "member", string(r.Assignment)
		if gen, _, _ := strings.Cut(c.has, "/"); c.has != "" && gen != fmt.Sprint(c.gen) {
			c.w.fail("%s is in generation %d and has %s", c, c.gen, c.has)
		}
		if m := c.w.member(c.id); m == nil || c.w.row.Epoch == c.gen && (c.w.row.AssignmentEpoch != c.gen || string(m.Assignment) != c.has) {
			c.w.fail("%s is given %q, which no row says", c, c.has)
		}
		c.w.checkShares()
	case group.HeartbeatReply:
		c.failed(r.Code, c.id)
	}
}

// failed does what a client does about an error.
func (c *classicClient) failed(code group.Code, id string) bool {
	switch code {
	case group.None:
		return false
	case group.MemberIDRequired:
		c.id = id
	case group.UnknownMember:
		c.id, c.has = "", ""
	case group.FencedInstance:
		c.alive = false
	case group.RebalanceInProgress, group.IllegalGeneration:
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

func (c *classicClient) joined(r group.JoinReply) {
	if r.Generation < c.best {
		c.w.fail("%s is told generation %d after %d", c, r.Generation, c.best)
	}
	if c.w.member(r.MemberID) == nil || c.w.row.Epoch < r.Generation {
		c.w.fail("%s is told that it is %s of generation %d, which no row says", c, r.MemberID, r.Generation)
	}
	c.id, c.gen, c.best, c.phase, c.members = r.MemberID, r.Generation, r.Generation, "sync", nil
	if r.Leader != r.MemberID || r.SkipAssignment {
		return
	}
	c.members = r.Members
	if o := c.w.leaders[r.Generation]; o != "" && o != c.id && c.w.member(o) != nil {
		c.w.fail("generation %d has the leaders %s and %s", r.Generation, o, c.id)
	}
	c.w.leaders[r.Generation] = c.id
}

// act sends the next request.
func (c *classicClient) act() group.Out {
	t := c.w.ask(c)
	c.open = true
	switch c.phase {
	case "sync":
		r := group.SyncRequest{MemberID: c.id, InstanceID: c.instance, Generation: c.gen}
		given := make([][]string, len(c.members))
		for n := range shares {
			if len(given) > 0 {
				given[n%len(given)] = append(given[n%len(given)], fmt.Sprint(n))
			}
		}
		for i, m := range c.members {
			r.Assignments = append(r.Assignments, group.MemberAssignment{MemberID: m.ID, Assignment: fmt.Appendf(nil, "%d/%s", c.gen, strings.Join(given[i], " "))})
		}
		return c.w.g.Sync(c.w.now, t, r, c.w.topics)
	case "member":
		return c.w.g.Heartbeat(c.w.now, t, group.HeartbeatRequest{MemberID: c.id, InstanceID: c.instance, Generation: c.gen}, c.w.topics)
	}
	return c.w.g.Join(c.w.now, t, group.JoinRequest{
		MemberID: c.id, InstanceID: c.instance, NewID: c.w.newID(), SessionTimeout: 10 * time.Second, RebalanceTimeout: 12 * time.Second,
		ProtocolType: "consumer", Protocols: []fsm.GroupProtocol{{Name: "range", Metadata: subscriptionOf(c.topics, "")}},
		KnownIDRequired: c.known, MaySkipAssignment: c.skip,
	}, c.w.topics)
}

// checkShares fails when two clients have one share in one generation, unless the
// one has taken the place of the other, who will hear of it.
func (w *classicWorld) checkShares() {
	holders := map[string]*classicClient{}
	for _, c := range w.clients {
		gen, list, _ := strings.Cut(c.has, "/")
		if !c.alive || c.phase != "member" || w.member(c.id) == nil {
			continue
		}
		for share := range strings.FieldsSeq(list) {
			key := gen + "/" + share
			if o := holders[key]; o != nil {
				w.fail("%s and %s have share %s", o, c, key)
			}
			holders[key] = c
		}
	}
}

// TestClassicRandom: whatever clients, answers and coordinators do, generations
// rise, each has one leader, and when events stop everybody is in the same one.
func TestClassicRandom(t *testing.T) {
	eachSeed(t, func(o *world) {
		w := &classicWorld{world: o, leaders: map[int32]string{}}
		for range w.from(10, 200) {
			w.event()
		}
		w.calm()
	})
}

func (w *classicWorld) event() {
	switch n := w.from(0, 99); {
	case n < 45:
		w.act()
	case n < 65:
		w.commit(true)
	case n < 77:
		w.pass(time.Duration(w.from(1, 3000))*time.Millisecond, true)
	case n < 86:
		w.start()
	case n < 89:
		w.refuse()
	case n < 92:
		w.failover()
	case n < 94:
		w.pass(9*time.Second, true)
	case n < 95:
		w.now = w.now.Add(20 * time.Second) // the coordinator stands still
		w.took(w.g.Expire(w.now), true)
	default:
		w.stop()
	}
}

func (w *classicWorld) some() *classicClient {
	var alive []*classicClient
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

func (w *classicWorld) act() {
	c := w.some()
	if c == nil || c.open && !w.chance(5) {
		return
	}
	if w.chance(5) {
		c.topics, c.phase = []string{"t", fmt.Sprint("t", w.from(0, 3))}, "join"
	}
	if c.open { // it gave up waiting, and asks again
		for t, o := range w.asked {
			if o == client(c) {
				w.asked[t] = nobody{}
			}
		}
		c.lost()
	}
	w.took(c.act(), true)
}

// nobody waits for the answer of a request that was given up.
type nobody struct{}

func (nobody) answered(group.Answer) {}
func (nobody) lost()                 {}
func (nobody) String() string        { return "nobody" }

func (w *classicWorld) start() {
	c := &classicClient{w: w, alive: true, phase: "join", topics: []string{"t"}, known: w.chance(70), skip: w.chance(50)}
	if w.chance(40) {
		c.instance = fmt.Sprintf("i%d", w.from(0, 2))
	}
	w.clients = append(w.clients, c)
}

func (w *classicWorld) stop() {
	c := w.some()
	if c == nil {
		return
	}
	if !c.open && c.id != "" && w.chance(60) {
		c.open = true
		w.took(w.g.Leave(w.now, w.ask(c), group.LeaveRequest{Members: []group.LeaveMember{{MemberID: c.id, InstanceID: c.instance}}}), true)
	}
	c.alive = false
}

// calm lets everything go well for long enough.
func (w *classicWorld) calm() {
	w.commit(false)
	for range 120 {
		for _, c := range w.clients {
			if c.alive && !c.open {
				w.took(c.act(), false)
				w.commit(false)
			}
		}
		w.pass(time.Second, false)
	}
	w.checkAnswered()
	alive, given := 0, map[string]bool{}
	for _, c := range w.clients {
		if !c.alive {
			continue
		}
		alive++
		if c.phase != "member" || c.gen != w.row.Epoch {
			w.fail("%s ends in phase %s of generation %d: %s", c, c.phase, c.gen, w.g.Why())
		}
		_, list, _ := strings.Cut(c.has, "/")
		for share := range strings.FieldsSeq(list) {
			if given[share] {
				w.fail("share %s is given twice", share)
			}
			given[share] = true
		}
	}
	state := w.g.State()
	if alive > 0 && (state != group.Stable || len(given) != shares) || alive == 0 && state != group.Empty {
		w.fail("with %d clients the group ends %s with %d shares given: %s", alive, state, len(given), w.g.Why())
	}
}
