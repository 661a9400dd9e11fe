package feed

import (
	"fmt"
	"time"
)

// maxPings bounds the pings that are remembered; a Pong to an older one says nothing.
const maxPings = 64

// pinger is either side's half of Ping and Pong. What proves that the peer was
// alive at a time is a question sent at or after it that was answered: an answer
// read late, after this node itself stood still, is worth no more than that.
type pinger struct {
	number uint64
	sent   []sentPing
	unsent bool // the newest of sent is to be sent
	heard  time.Time

	pong    uint64 // the newest question of the peer
	pongDue bool
}

type sentPing struct {
	number uint64
	at     time.Time
}

func (p *pinger) ping(now time.Time) {
	if len(p.sent) == maxPings {
		p.sent = append(p.sent[:0], p.sent[1:]...)
	}
	p.number++
	p.sent = append(p.sent, sentPing{p.number, now})
	p.unsent = true
}

func (p *pinger) asked(number uint64) {
	p.pong, p.pongDue = max(p.pong, number), true
}

func (p *pinger) answered(number uint64) error {
	if number > p.number {
		return fmt.Errorf("%w: answer to ping %d, of %d sent", ErrProtocol, number, p.number)
	}
	n := 0
	for n < len(p.sent) && p.sent[n].number <= number {
		p.heard = p.sent[n].at
		n++
	}
	p.sent = append(p.sent[:0], p.sent[n:]...)
	return nil
}

// next returns the frame to send, if any.
func (p *pinger) next() (Frame, bool) {
	switch {
	case p.pongDue:
		p.pongDue = false
		return Pong{Number: p.pong}, true
	case p.unsent:
		p.unsent = false
		return Ping{Number: p.number}, true
	}
	return nil, false
}
