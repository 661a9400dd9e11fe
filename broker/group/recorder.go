package group

import (
	"time"

	"github.com/weirmq/weir/fsm"
)

// Transition is one entry of the flight recorder: what happened to the group, and
// who caused it.
type Transition struct {
	At         time.Time
	From, To   State
	Epoch      int32 // generation or group epoch, after it
	Member     string
	ClientID   string
	ClientHost string
	Cause      string
}

// recorder keeps the last transitions, in the form in which the row has them. What
// was noted since the row was last stored goes with the next one; nothing is stored
// for a note alone, since a successor that does not know of it does not know either
// of what it says.
type recorder struct {
	all    fsm.GroupHistory // the last of all, stored or not
	noted  uint32           // number of the last one
	stored uint32           // number of the last one that is known to be in the row
	put    uint32           // number of the last one in the newest Put
	state  State            // after the last
}

func (r *recorder) add(e *fsm.GroupEvent) {
	r.all = r.all.Append(e)
	r.noted++
	r.state = State(e.To)
}

// load goes on from a row. The row's bytes are not written to: to append makes new ones.
func (r *recorder) load(row *fsm.Group, now State) {
	r.all = row.History[:len(row.History):len(row.History)]
	r.noted, r.stored, r.put = row.Noted, row.Noted, row.Noted
	r.state = now
	if n := r.all.Last(1).Events(); len(n) == 1 {
		r.state = State(n[0].To)
	}
}

// fill puts into a row what it has to add to the stored ones.
func (r *recorder) fill(row *fsm.Group) {
	row.Noted = r.noted
	if fresh := r.all.Last(int(r.noted - r.stored)); len(fresh) > 0 {
		row.History = append(fsm.GroupHistory(nil), fresh...)
	}
	r.put = r.noted
}

// transitions reads what is kept, the oldest first.
func (r *recorder) transitions() []Transition {
	events := r.all.Events()
	all := make([]Transition, 0, len(events))
	for _, e := range events {
		all = append(all, Transition{
			At: time.UnixMilli(e.AtMs), From: State(e.From), To: State(e.To), Epoch: e.Epoch,
			Member: e.Member, ClientID: e.ClientID, ClientHost: e.ClientHost, Cause: e.Cause,
		})
	}
	return all
}

// last returns the newest transition into another state, which is why the group
// is where it is.
func (r *recorder) last() (Transition, bool) {
	all := r.transitions()
	for i := len(all) - 1; i >= 0; i-- {
		if t := all[i]; t.From != t.To {
			return t, true
		}
	}
	return Transition{}, false
}

// History returns the last transitions, the oldest first.
func (g *Group) History() []Transition { return g.history.transitions() }

// transition moves a classic group, or any to Dead.
func (g *Group) transition(m *member, to State, cause string) {
	g.state = to
	g.note(m, cause)
}

// note records what happened, and the state that it led to.
func (g *Group) note(m *member, cause string) {
	e := fsm.GroupEvent{AtMs: g.now.UnixMilli(), From: uint8(g.history.state), To: uint8(g.State()), Epoch: g.epoch, Cause: cause}
	if m != nil {
		e.Member, e.ClientID, e.ClientHost = m.ID, m.ClientID, m.ClientHost
	}
	g.history.add(&e)
}
