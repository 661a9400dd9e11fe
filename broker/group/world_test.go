package group_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
)

// Each failure names its seed; -group.seed runs that one alone.
var (
	runs    = flag.Int("group.seeds", 500, "how many random runs of each kind")
	oneSeed = flag.Uint64("group.seed", 0, "run this seed alone")
)

// eachSeed makes random runs.
func eachSeed(t *testing.T, run func(w *world)) {
	if *oneSeed != 0 {
		run(newWorld(t, *oneSeed))
		return
	}
	seeds.Alone(t)
	for seed := range uint64(*runs) {
		run(newWorld(t, seed+1))
	}
}

// world drives one group with clients that lose answers, and a coordinator that
// is replaced, refused and late. It checks each row that is committed and that
// each ticket is answered once.
type world struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	now     time.Time
	cfg     group.Config
	g       *group.Group
	row     *fsm.Group
	put     *fsm.Group
	del     bool
	noted   []group.Transition // by the time of put
	seq     uint64
	last    group.Ticket
	asked   map[group.Ticket]client
	ids     int
	epochs  int32                         // the highest that a row had
	tenures map[fsm.TopicPartition]tenure // of the last row
	topics  topicSet
}

// client is one client process of either protocol.
type client interface {
	// answered takes the answer to the one request that is open.
	answered(group.Answer)
	// lost tells that the answer to it will never come.
	lost()
	fmt.Stringer
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), cfg: group.DefaultConfig(), asked: map[group.Ticket]client{}, topics: topicSet{}}
	w.cfg.InitialDelay = time.Duration(w.from(0, 3)) * time.Second
	w.cfg.AssignmentInterval = time.Duration(w.from(0, 2)) * time.Second
	if w.chance(30) {
		w.cfg.Assignors = []string{group.Range, group.Uniform}
	}
	w.g = group.New("g", w.cfg)
	return w
}

func (w *world) ask(c client) group.Ticket {
	w.last++
	w.asked[w.last] = c
	return w.last
}

func (w *world) newID() string {
	w.ids++
	return fmt.Sprintf("m%03d", w.ids)
}

// from is a number of that span, both ends included.
func (w *world) from(low, high int) int { return low + w.rng.IntN(high-low+1) }

// chance is true in n of 100 cases.
func (w *world) chance(n int) bool { return w.rng.IntN(100) < n }

// fail ends the test.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, t := range w.g.History() {
		w.t.Logf("%s %s→%s epoch %d [%s] %s", t.At.Format("15:04:05"), t.From, t.To, t.Epoch, t.Member, t.Cause)
	}
	w.t.Fatalf("-group.seed=%d: %s", w.seed, fmt.Sprintf(format, args...))
}

// took acts on what a call gave. An answer is lost now and then when faults are on.
func (w *world) took(o group.Out, faults bool) {
	for _, r := range o.Replies {
		c, open := w.asked[r.Ticket]
		if !open {
			w.fail("ticket %d is answered, which is not open: %+v", r.Ticket, r.Answer)
		}
		delete(w.asked, r.Ticket)
		if faults && w.chance(5) {
			c.lost()
			continue
		}
		c.answered(r.Answer)
	}
	if o.Put != nil || o.Delete {
		if o.Seq <= w.seq {
			w.fail("sequence %d after %d", o.Seq, w.seq)
		}
		w.put, w.del, w.seq = o.Put, o.Delete, o.Seq
		w.noted = w.g.History()
	}
	if o.Dead {
		w.reload()
	}
}

// commit applies the newest Put.
func (w *world) commit(faults bool) {
	if w.put == nil && !w.del {
		return
	}
	w.apply()
	w.took(w.g.Committed(w.now, w.seq), faults)
}

func (w *world) apply() {
	if w.put != nil {
		w.checkRow(w.put)
		w.put = fsm.PutGroup{Group: w.put}.Over(w.row)
		w.checkHistory()
	}
	w.row, w.put, w.del = w.put, nil, false
	if w.row == nil {
		w.epochs, w.tenures = 0, nil
	}
}

// refuse tells that the newest Put was not applied.
func (w *world) refuse() {
	if w.put == nil && !w.del {
		return
	}
	w.put, w.del = nil, false
	w.took(w.g.Refused(w.now, w.seq), false)
}

// failover replaces the coordinator. What it had proposed may still be applied.
func (w *world) failover() {
	if (w.put != nil || w.del) && w.chance(50) {
		w.apply()
	}
	w.reload()
}

func (w *world) reload() {
	w.put, w.del = nil, false
	for _, t := range slices.Sorted(maps.Keys(w.asked)) {
		c := w.asked[t]
		delete(w.asked, t)
		c.lost()
	}
	w.g, w.seq = group.New("g", w.cfg), 0
	if w.row != nil {
		w.g = group.Load(w.row, w.cfg, w.now)
	}
}

// pass lets time pass; Expire comes when the group wants it.
func (w *world) pass(d time.Duration, faults bool) {
	end := w.now.Add(d)
	for n := 0; ; n++ {
		wake := w.g.WakeAt()
		if wake.IsZero() || wake.After(end) {
			break
		}
		if n > 10_000 {
			w.fail("Expire is wanted at %v again and again", wake)
		}
		if wake.After(w.now) {
			w.now = wake
		}
		w.took(w.g.Expire(w.now), faults)
		if !faults {
			w.commit(false)
		}
	}
	w.now = end
}

// checkRow checks what must hold in each row.
func (w *world) checkRow(row *fsm.Group) {
	if row.Epoch < w.epochs {
		w.fail("the epoch goes back from %d to %d", w.epochs, row.Epoch)
	}
	w.epochs = row.Epoch
	if (row.EmptySince != 0) != (len(row.Members) == 0) {
		w.fail("empty since %d with %d members", row.EmptySince, len(row.Members))
	}
	instances, owners := map[string]string{}, map[fsm.TopicPartition]string{}
	for i, m := range row.Members {
		if i > 0 && m.ID <= row.Members[i-1].ID {
			w.fail("members are not ascending: %s after %s", m.ID, row.Members[i-1].ID)
		}
		if m.InstanceID != "" {
			if o, taken := instances[m.InstanceID]; taken {
				w.fail("instance %s is %s and %s", m.InstanceID, o, m.ID)
			}
			instances[m.InstanceID] = m.ID
		}
		for _, set := range [][]fsm.TopicPartitions{m.Assigned, m.Revoking} {
			for _, t := range set {
				for _, p := range t.Partitions {
					tp := fsm.TopicPartition{Topic: t.Topic, Partition: p}
					if o, taken := owners[tp]; taken {
						w.fail("partition %d of %s belongs to %s and %s", p, t.Topic, o, m.ID)
					}
					owners[tp] = m.ID
				}
			}
		}
	}
	w.checkGrants(row)
	if row.Kind == fsm.ClassicGroup && row.Leader != "" && len(row.Members) > 0 {
		for _, m := range row.Members {
			if m.ID == row.Leader {
				return
			}
		}
		w.fail("the leader %s is not a member", row.Leader)
	}
}

// tenure is since which epoch of its own a member has had a partition.
type tenure struct {
	member string
	epoch  int32
}

// checkGrants fails if a member of the consumer protocol may commit for a partition
// with an epoch at which it did not have that, or may not with its present one.
func (w *world) checkGrants(row *fsm.Group) {
	tenures := map[fsm.TopicPartition]tenure{}
	for _, m := range row.Members {
		granted := map[fsm.TopicPartition]int32{}
		for i, g := range m.Grants {
			if g.Epoch > m.Epoch && m.Epoch >= 0 || i > 0 && g.Epoch <= m.Grants[i-1].Epoch {
				w.fail("member %s at epoch %d has grants %+v", m.ID, m.Epoch, m.Grants)
			}
			eachPartition(g.Partitions, func(tp fsm.TopicPartition) { granted[tp] = g.Epoch })
		}
		for _, set := range [][]fsm.TopicPartitions{m.Assigned, m.Revoking} {
			eachPartition(set, func(tp fsm.TopicPartition) {
				has, ok := w.tenures[tp]
				if !ok || has.member != m.ID {
					has = tenure{m.ID, m.Epoch}
				}
				tenures[tp] = has
				epoch, ok := granted[tp]
				if row.Kind == fsm.ConsumerGroup && !m.Classic() && (!ok || epoch < has.epoch) {
					w.fail("member %s has partition %d of %s since epoch %d; its grants are %+v", m.ID, tp.Partition, tp.Topic, has.epoch, m.Grants)
				}
			})
		}
	}
	w.tenures = tenures
}

func eachPartition(set []fsm.TopicPartitions, do func(fsm.TopicPartition)) {
	for _, t := range set {
		for _, p := range t.Partitions {
			do(fsm.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
}

// checkHistory fails unless the row has all that its coordinator had noted by then.
func (w *world) checkHistory() {
	stored := w.put.History.Events()
	if len(stored) != len(w.noted) {
		w.fail("%d transitions are stored of %d", len(stored), len(w.noted))
	}
	for i, e := range stored {
		t := w.noted[i]
		if e.AtMs != t.At.UnixMilli() || e.Cause != t.Cause || e.Member != t.Member || e.From != uint8(t.From) || e.To != uint8(t.To) || e.Epoch != t.Epoch {
			w.fail("transition %d is stored as %+v, want %+v", i, e, t)
		}
	}
}

// member returns the member of the committed row, or nil.
func (w *world) member(id string) *fsm.GroupMember {
	if w.row == nil {
		return nil
	}
	for i := range w.row.Members {
		if w.row.Members[i].ID == id {
			return &w.row.Members[i]
		}
	}
	return nil
}

// checkAnswered fails when somebody was forgotten.
func (w *world) checkAnswered() {
	for t, c := range w.asked {
		w.fail("ticket %d of %s was never answered", t, c)
	}
}
