package elect

import (
	"time"

	"github.com/weirmq/weir/fsm"
)

// Liveness knows which broker incarnations have a live session. It is the soft
// state of one controller reign: it begins empty, and Takeover fills it.
//
// A session ends in one of two ways. Either no heartbeat came for its length, or
// there is evidence: a node whose connection to the broker closed had its redial
// refused (Reported), and the controller's own dial was refused too (Refused). A
// timeout proves nothing. A refusal does not either where a firewall answers for the
// broker, which then goes on as if it had a session: so nothing that must not be
// contradicted may rest on one.
//
// Time during which the controller itself did not run is not held against
// anyone: heartbeats may lie unread in its sockets. Every call tells the time;
// when more than half a session has passed since the last one, each session gets
// at least half a session more. For that the caller must come by at least as
// often as WakeAt asks.
//
// The time is an argument; readings must come from one monotonic clock.
type Liveness struct {
	session  time.Duration
	began    time.Time // of the reign
	last     time.Time // of the latest call
	sessions map[fsm.BrokerID]*session
}

type session struct {
	epoch    fsm.BrokerEpoch
	deadline time.Time // the session has ended when it is not after now
	reported bool      // a node was refused there after the latest heartbeat
	refused  bool      // so was the controller: the session has ended
}

func (s *session) live(now time.Time) bool { return !s.refused && s.deadline.After(now) }

// NewLiveness returns an empty Liveness for sessions of the given length.
func NewLiveness(length time.Duration) *Liveness {
	return &Liveness{session: length, sessions: map[fsm.BrokerID]*session{}}
}

// Takeover begins a reign: every registered broker gets a full session from now,
// since the new controller has heard from nobody yet.
func (l *Liveness) Takeover(now time.Time, im *fsm.Image) {
	l.began, l.last = now, now
	clear(l.sessions)
	for b := range im.Brokers() {
		l.sessions[b.ID] = &session{epoch: b.Epoch, deadline: now.Add(l.session)}
	}
}

// Unheard notes that no controller before this reign renewed the session of a broker later
// than at. If its session is still the one that Takeover gave, it ends that much
// earlier, but not within half a session: the broker may be about to find the new
// controller.
func (l *Liveness) Unheard(id fsm.BrokerID, at, now time.Time) {
	l.tick(now)
	s, ok := l.sessions[id]
	if !ok || !s.deadline.Equal(l.began.Add(l.session)) {
		return
	}
	deadline := at.Add(l.session)
	if least := now.Add(l.session / 2); deadline.Before(least) {
		deadline = least
	}
	if deadline.Before(s.deadline) {
		s.deadline = deadline
	}
}

// Heartbeat renews the session of an incarnation, which begins with its first
// heartbeat. It reports false, and does nothing, for one that has been replaced.
// The caller has checked that the epoch is registered.
func (l *Liveness) Heartbeat(id fsm.BrokerID, epoch fsm.BrokerEpoch, now time.Time) bool {
	l.tick(now)
	s, ok := l.sessions[id]
	if ok && epoch < s.epoch {
		return false
	}
	l.sessions[id] = &session{epoch: epoch, deadline: now.Add(l.session)}
	return true
}

// Reported notes that a node's redial to that incarnation was refused. It tells
// whether the controller should dial it now to make sure, and then call Refused
// if it is refused too.
func (l *Liveness) Reported(id fsm.BrokerID, epoch fsm.BrokerEpoch, now time.Time) bool {
	l.tick(now)
	s, ok := l.sessions[id]
	if !ok || s.epoch != epoch || !s.live(now) {
		return false
	}
	s.reported = true
	return true
}

// Refused notes that the controller's own dial was refused. After a report, and
// without a heartbeat in between, that ends the session at once.
func (l *Liveness) Refused(id fsm.BrokerID, epoch fsm.BrokerEpoch, now time.Time) {
	l.tick(now)
	if s, ok := l.sessions[id]; ok && s.epoch == epoch && s.reported {
		s.refused = true
	}
}

// Live reports whether that incarnation has a session.
func (l *Liveness) Live(id fsm.BrokerID, epoch fsm.BrokerEpoch, now time.Time) bool {
	l.tick(now)
	s, ok := l.sessions[id]
	return ok && s.epoch == epoch && s.live(now)
}

// Expired returns a FenceBroker for each unfenced broker of the Image whose
// session has ended, by ascending id, until the Image shows it fenced. A broker
// that was registered since is given a full session.
func (l *Liveness) Expired(now time.Time, im *fsm.Image) []fsm.FenceBroker {
	l.tick(now)
	var out []fsm.FenceBroker
	for b := range im.Brokers() {
		s, ok := l.sessions[b.ID]
		if !ok || s.epoch < b.Epoch {
			l.sessions[b.ID] = &session{epoch: b.Epoch, deadline: now.Add(l.session)}
			continue
		}
		if !b.Fenced && s.epoch == b.Epoch && !s.live(now) {
			out = append(out, fsm.FenceBroker{ID: b.ID, Epoch: b.Epoch})
		}
	}
	return out
}

// WakeAt is when to call Expired next at the latest: at the next end of a
// session, and often enough for a stall of the caller to show.
func (l *Liveness) WakeAt() time.Time {
	at := l.last.Add(l.session / 4)
	for _, s := range l.sessions {
		if s.deadline.Before(at) && s.deadline.After(l.last) {
			at = s.deadline
		}
	}
	return at
}

// tick notes that the controller is running, and makes up for a time when it
// was not.
func (l *Liveness) tick(now time.Time) {
	stalled := !l.last.IsZero() && now.Sub(l.last) > l.session/2
	if now.After(l.last) {
		l.last = now
	}
	if !stalled {
		return
	}
	least := now.Add(l.session / 2)
	for _, s := range l.sessions {
		if s.deadline.Before(least) {
			s.deadline = least
		}
	}
}
