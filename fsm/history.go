package fsm

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// The bounds of a GroupHistory. Older events give way to newer ones.
const (
	historyEvents = 32
	historyBytes  = 4096
)

// The bounds of the texts of one event, in bytes. Longer ones are cut: an event that
// could fill the history would push out all others.
const (
	eventNameMax  = 120
	eventCauseMax = 240
)

// GroupEvent is one entry of a group's flight recorder: what happened to it, who was
// behind it, and how it stood before and after.
type GroupEvent struct {
	AtMs       int64
	From, To   uint8 // states, by the coordinator's numbers
	Epoch      int32 // generation or group epoch, after it
	Member     string
	ClientID   string
	ClientHost string
	Cause      string // has the member's id in it as often as not, which then takes one byte
}

// GroupHistory is the last events of a group, the oldest first, each with its length
// before it. It is kept in this form since it is seldom read: 32 events of 130 bytes
// are one object, not 160. It is never changed in place.
type GroupHistory []byte

// memberMark stands for the member's id in an encoded cause.
const memberMark = "\x00"

// Append returns the history with one more event. It may share memory with h.
func (h GroupHistory) Append(e *GroupEvent) GroupHistory {
	member := cut(e.Member, eventNameMax)
	cause := strings.ReplaceAll(e.Cause, memberMark, "")
	if e.Member != "" {
		cause = strings.ReplaceAll(cause, e.Member, memberMark)
	}
	p := binary.AppendUvarint(make([]byte, 0, 160), uint64(e.AtMs))
	p = append(p, e.From, e.To)
	p = binary.AppendUvarint(p, uint64(uint32(e.Epoch)))
	for _, s := range [...]string{member, cut(e.ClientID, eventNameMax), cut(e.ClientHost, eventNameMax), cut(cause, eventCauseMax)} {
		p = binary.AppendUvarint(p, uint64(len(s)))
		p = append(p, s...)
	}
	h = binary.AppendUvarint(h, uint64(len(p)))
	return append(h, p...).trim()
}

// cut shortens a text, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// trim drops the oldest events as long as there are too many.
func (h GroupHistory) trim() GroupHistory {
	for n := h.Len(); n > 1 && (n > historyEvents || len(h) > historyBytes); n-- {
		_, h = h.next()
	}
	return h
}

// next takes the first event off; nil when what is there is none.
func (h GroupHistory) next() (event []byte, rest GroupHistory) {
	size, n := binary.Uvarint(h)
	if n <= 0 || size > uint64(len(h)-n) {
		return nil, nil
	}
	return h[n : n+int(size)], h[n+int(size):]
}

// Len is the number of events.
func (h GroupHistory) Len() int {
	n := 0
	for len(h) > 0 {
		if _, h = h.next(); h != nil {
			n++
		}
	}
	return n
}

// Last returns the newest n events.
func (h GroupHistory) Last(n int) GroupHistory {
	for skip := h.Len() - n; skip > 0; skip-- {
		_, h = h.next()
	}
	return h
}

// Events reads them all, the oldest first. It stops at what cannot be read.
func (h GroupHistory) Events() []GroupEvent {
	var all []GroupEvent
	for len(h) > 0 {
		var p []byte
		if p, h = h.next(); p == nil {
			break
		}
		e, ok := readEvent(p)
		if !ok {
			break
		}
		all = append(all, e)
	}
	return all
}

func readEvent(p []byte) (e GroupEvent, ok bool) {
	at, n := binary.Uvarint(p)
	if n <= 0 || len(p) < n+2 {
		return e, false
	}
	e.AtMs, e.From, e.To = int64(at), p[n], p[n+1]
	p = p[n+2:]
	epoch, n := binary.Uvarint(p)
	if n <= 0 {
		return e, false
	}
	e.Epoch, p = int32(uint32(epoch)), p[n:]
	for _, s := range []*string{&e.Member, &e.ClientID, &e.ClientHost, &e.Cause} {
		text, rest := GroupHistory(p).next()
		if text == nil {
			return e, false
		}
		*s, p = string(text), rest
	}
	e.Cause = strings.ReplaceAll(e.Cause, memberMark, e.Member)
	return e, len(p) == 0
}

// fits says that a history is within its bounds, and whole.
func (h GroupHistory) fits() bool {
	if len(h) > historyBytes {
		return false
	}
	n := 0
	for len(h) > 0 {
		var p []byte
		if p, h = h.next(); p == nil {
			return false
		}
		n++
	}
	return n <= historyEvents
}

// Over is the group as it is stored in place of old, which may be nil: with the events
// of both. The new one brings those that its coordinator does not know to be stored,
// some of which may be.
func (c PutGroup) Over(old *Group) *Group {
	g := c.Group
	if old == nil {
		return g
	}
	n := g.History.Len()
	known := min(max(int64(old.Noted)-(int64(g.Noted)-int64(n)), 0), int64(n))
	both := *g
	both.Noted = max(g.Noted, old.Noted)
	fresh := g.History.Last(n - int(known))
	both.History = old.History
	if len(fresh) > 0 {
		both.History = append(old.History[:len(old.History):len(old.History)], fresh...).trim()
	}
	return &both
}
