package isr_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// machine drives a Leader with any events in any order, as a shell may, and
// knows what a Leader cannot: which of its proposals may still be applied.
type machine struct {
	now      time.Time
	state    isr.State
	leader   *isr.Leader
	end      batch.Offset
	flushed  batch.Offset
	hw       batch.Offset
	brokers  map[fsm.BrokerID]broker
	counted  map[fsm.BrokerID]isr.Position // of the present incarnation, in this leader epoch
	attempts map[fsm.BrokerID]bool
	inFlight *isr.Change
	possible []*isr.Change // proposals that may still be applied at this partition epoch
	settled  batch.Offset  // where the log ended when this partition epoch was installed
}

func (m *machine) live(id fsm.BrokerID) (fsm.BrokerEpoch, bool) {
	return m.brokers[id].epoch, m.brokers[id].eligible
}

func (m *machine) member(id fsm.BrokerID) isr.Member {
	return isr.Member{ID: id, Epoch: m.brokers[id].epoch}
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		now: time.Unix(1_000_000, 0), end: 20, flushed: 20, hw: 10, settled: 20, brokers: make(map[fsm.BrokerID]broker),
		counted: make(map[fsm.BrokerID]isr.Position), attempts: make(map[fsm.BrokerID]bool),
	}
	for id := fsm.BrokerID(1); id <= 4; id++ {
		m.brokers[id] = broker{fsm.BrokerEpoch(id), true}
	}
	durability := func(what string) fsm.Durability { return fsm.Durability(rapid.IntRange(0, 1).Draw(t, what)) }
	m.state = isr.State{Durability: durability("recorded"), Wanted: durability("wanted"), Replicas: []fsm.BrokerID{1, 2, 3, 4}, ISR: []fsm.BrokerID{1, 2, 3}, MinISR: int16(rapid.IntRange(1, 3).Draw(t, "min"))}
	c := isr.Config{Self: m.member(1), LagMax: 10 * time.Second}
	m.leader = isr.NewLeader(c, m.state, isr.Span{End: m.end, Flushed: m.flushed, HW: m.hw}, m.now)
	m.absorb(t, m.leader.Tick(m.now, m.live))
	return m
}

// absorb checks the effects of an event against what must hold whatever happens.
func (m *machine) absorb(t *rapid.T, e isr.Effects) {
	switch {
	case e.HW < m.hw:
		t.Fatalf("high watermark went back from %d to %d\n%v", m.hw, e.HW, m.leader)
	case e.HWMoved != (e.HW > m.hw):
		t.Fatalf("moved=%v from %d to %d", e.HWMoved, m.hw, e.HW)
	case e.HW > m.hw && len(m.state.ISR) < int(m.state.MinISR):
		t.Fatalf("high watermark moved to %d with ISR %v below min ISR %d", e.HW, m.state.ISR, m.state.MinISR)
	}
	if e.HW > m.hw {
		for _, id := range m.state.ISR {
			m.checkHolds(t, id, e.HW)
		}
		for _, p := range m.possible {
			for _, member := range p.ISR {
				m.checkHolds(t, member.ID, e.HW)
			}
		}
	}
	m.hw = e.HW
	if e.Propose != nil {
		m.checkProposal(t, e.Propose)
	}
}

// checkHolds fails unless a member has shown that it holds all below hw.
func (m *machine) checkHolds(t *rapid.T, id fsm.BrokerID, hw batch.Offset) {
	end := m.end
	if m.fsync() {
		end = m.flushed
	}
	if id != 1 {
		end = m.counted[id].Written
		if m.fsync() {
			end = m.counted[id].Flushed
		}
	}
	if end < hw {
		t.Fatalf("high watermark %d past the end %d of member %d\n%v", hw, end, id, m.leader)
	}
}

func (m *machine) checkProposal(t *rapid.T, c *isr.Change) {
	if m.inFlight != nil {
		t.Fatalf("%+v proposed while %+v is in flight", c, m.inFlight)
	}
	if c.PartitionEpoch != m.state.PartitionEpoch || !slices.Contains(c.ISR, m.member(1)) {
		t.Fatalf("%+v proposed at partition epoch %d", c, m.state.PartitionEpoch)
	}
	for _, member := range c.ISR {
		p, known := m.counted[member.ID]
		if !slices.Contains(m.state.Replicas, member.ID) {
			t.Fatalf("%v is no replica of %+v", member, m.state)
		}
		joins := member.ID != 1 && !slices.Contains(m.state.ISR, member.ID)
		if joins && !slices.ContainsFunc(m.possible, func(p *isr.Change) bool { return slices.Equal(p.ISR, c.ISR) }) {
			if !known || !m.attempts[member.ID] || p.Written < m.hw || p.Written < 20 || m.member(member.ID) != member || !m.brokers[member.ID].eligible {
				t.Fatalf("%v proposed to join with %+v at high watermark %d\n%v", member, p, m.hw, m.leader)
			}
		}
	}
	if !slices.ContainsFunc(m.possible, func(p *isr.Change) bool { return slices.Equal(p.ISR, c.ISR) && p.Durability == c.Durability }) {
		m.checkDurability(t, c)
	}
	if c.Confirms && m.state.Awaited {
		m.checkConfirms(t, c)
	}
	m.inFlight = c
	m.possible = append(m.possible, c)
}

// checkConfirms fails unless the disks of the committed ISR are known to have all that the
// log had when it became that.
func (m *machine) checkConfirms(t *rapid.T, c *isr.Change) {
	for _, id := range m.state.ISR {
		flushed := m.flushed
		if id != 1 {
			flushed = m.counted[id].Flushed
		}
		if flushed < m.settled || len(c.ISR) != len(m.state.ISR) {
			t.Fatalf("%+v confirms %v, of which %d has flushed to %d of %d\n%v", c, m.state.ISR, id, flushed, m.settled, m.leader)
		}
	}
}

// fsync tells whether the partition is recorded as one that survives a loss of
// power, may be, or is to be.
func (m *machine) fsync() bool {
	return m.state.Wanted == fsm.DurabilityFsync || m.state.Durability == fsm.DurabilityFsync ||
		slices.ContainsFunc(m.possible, func(c *isr.Change) bool { return c.Durability == fsm.DurabilityFsync })
}

// checkDurability fails unless all that was ever acknowledged, below the high
// watermark or by earlier leaders, is flushed by all of a full ISR.
func (m *machine) checkDurability(t *rapid.T, c *isr.Change) {
	if c.Durability != fsm.DurabilityFsync || m.state.Durability == fsm.DurabilityFsync {
		return
	}
	for _, member := range c.ISR {
		flushed := m.flushed
		if member.ID != 1 {
			flushed = m.counted[member.ID].Flushed
		}
		if flushed < max(m.hw, 20) || len(c.ISR) < int(m.state.MinISR) {
			t.Fatalf("%+v proposed with %d flushed by %v at high watermark %d\n%v", c, flushed, member, m.hw, m.leader)
		}
	}
}

// configure changes the wanted durability.
func (m *machine) configure(t *rapid.T) {
	m.state.Wanted = fsm.Durability(rapid.IntRange(0, 1).Draw(t, "wanted"))
	m.absorb(t, m.leader.Installed(m.state, m.now, m.live))
}

// follower draws one of the brokers that follow.
func (m *machine) follower(t *rapid.T) fsm.BrokerID {
	return fsm.BrokerID(rapid.IntRange(2, 4).Draw(t, "broker"))
}

func (m *machine) append(t *rapid.T) {
	m.end += batch.Offset(rapid.IntRange(0, 10).Draw(t, "records"))
	m.absorb(t, m.leader.Appended(m.end, m.now))
}

func (m *machine) flush(t *rapid.T) {
	m.flushed = batch.Offset(rapid.IntRange(int(m.flushed), int(m.end)).Draw(t, "flushed"))
	m.absorb(t, m.leader.Flushed(m.flushed, m.now, m.live))
}

func (m *machine) follow(t *rapid.T) {
	id := m.follower(t)
	w := batch.Offset(rapid.IntRange(0, int(m.end)).Draw(t, "written"))
	p := isr.Position{Written: w, Flushed: batch.Offset(rapid.IntRange(0, int(w)).Draw(t, "flushed"))}
	m.leader.Follow(m.member(id), m.now)
	m.counted[id], m.attempts[id] = p, true
	m.absorb(t, m.leader.Progressed(m.member(id), p, m.now, m.live))
}

func (m *machine) progress(t *rapid.T) {
	id := m.follower(t)
	if !m.attempts[id] {
		return
	}
	old := m.counted[id]
	w := batch.Offset(rapid.IntRange(int(old.Written), int(m.end)).Draw(t, "written"))
	p := isr.Position{Written: w, Flushed: batch.Offset(rapid.IntRange(int(old.Flushed), int(w)).Draw(t, "flushed"))}
	m.counted[id] = p
	m.absorb(t, m.leader.Progressed(m.member(id), p, m.now, m.live))
}

func (m *machine) gone(t *rapid.T) {
	id := m.follower(t)
	m.attempts[id] = false
	m.leader.Gone(m.member(id))
}

func (m *machine) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
	m.absorb(t, m.leader.Tick(m.now, m.live))
}

// change alters a broker: fenced, stopping, or registered anew.
func (m *machine) change(t *rapid.T) {
	id := m.follower(t)
	b := m.brokers[id]
	if rapid.Bool().Draw(t, "anew") {
		b.epoch += 10
		delete(m.counted, id)
		m.attempts[id] = false
	} else {
		b.eligible = !b.eligible
	}
	m.brokers[id] = b
	m.absorb(t, m.leader.Installed(m.state, m.now, m.live))
}

// remove is the controller's own removal of a broker from the ISR.
func (m *machine) remove(t *rapid.T) {
	id := m.follower(t)
	s := m.state
	s.ISR = slices.DeleteFunc(slices.Clone(s.ISR), func(i fsm.BrokerID) bool { return i == id })
	m.install(t, s)
}

// move lets a replica outside the ISR go, or come as new as any.
func (m *machine) move(t *rapid.T) {
	id, s := m.follower(t), m.state
	if slices.Contains(s.ISR, id) {
		return
	}
	if slices.Contains(s.Replicas, id) {
		s.Replicas = slices.DeleteFunc(slices.Clone(s.Replicas), func(i fsm.BrokerID) bool { return i == id })
	} else {
		s.Replicas = append(slices.Clone(s.Replicas), id)
	}
	delete(m.counted, id)
	m.attempts[id] = false
	m.install(t, s)
}

// confirm has a reassignment wait for the leader to confirm the ISR, or no longer.
func (m *machine) confirm(t *rapid.T) {
	s := m.state
	s.Awaited = !s.Awaited
	m.install(t, s)
}

// install raises the partition epoch: nothing proposed before can be applied any more.
func (m *machine) install(t *rapid.T, s isr.State) {
	s.PartitionEpoch++
	m.state, m.possible, m.inFlight = s, nil, nil
	m.settled = m.end
	m.absorb(t, m.leader.Installed(s, m.now, m.live))
}

// settle applies a proposal that may be applied, whether it is in flight or was
// answered as unknown.
func (m *machine) settle(t *rapid.T) {
	if len(m.possible) == 0 {
		return
	}
	chosen := rapid.SampledFrom(m.possible).Draw(t, "applied")
	s := m.state
	s.ISR = nil
	s.Durability = chosen.Durability
	for _, member := range chosen.ISR {
		s.ISR = append(s.ISR, member.ID)
	}
	if m.inFlight != nil && rapid.Bool().Draw(t, "answered first") {
		o := isr.Unknown
		if m.inFlight == chosen {
			o = isr.Committed
		}
		m.answer(t, o)
	}
	m.install(t, s)
}

func (m *machine) answer(t *rapid.T, o isr.Outcome) {
	c := m.inFlight
	m.inFlight = nil
	m.absorb(t, m.leader.Answered(c.PartitionEpoch, o, m.now, m.live))
}

func (m *machine) unknown(t *rapid.T) {
	if m.inFlight != nil {
		m.answer(t, isr.Unknown)
	}
}

// refused certainly never leads to anything; earlier copies may.
func (m *machine) refused(t *rapid.T) {
	if m.inFlight != nil {
		m.possible = m.possible[:len(m.possible)-1]
		m.answer(t, isr.Refused)
	}
}

// TestLeaderHoldsWhateverHappens: the high watermark never goes back, and never
// passes a member of any ISR that is or may become the committed one.
func TestLeaderHoldsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "flush": m.flush, "follow": m.follow, "progress": m.progress, "progress again": m.progress,
			"gone": m.gone, "tick": m.tick, "change": m.change, "remove": m.remove, "move": m.move, "confirm": m.confirm,
			"configure": m.configure, "settle": m.settle, "unknown": m.unknown, "refused": m.refused,
		})
	})
}
