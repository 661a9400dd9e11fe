package sim

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/weirmq/weir/fsm"
)

// The session of a node with the controller: what package controller's Session does.

// beat sends one heartbeat, and the next one when it is due.
func (n *node) beat() {
	began := n.clock()
	r := beat{id: n.id, epoch: n.epoch, settled: n.reconciled.Index(), ready: n.ready}
	n.try(session/2, func(t *term, reply func(any, error)) { t.heartbeat(r, reply) }, func(v any, err error) {
		got, ok := v.(beatReply)
		switch {
		case err != nil || !ok:
			n.do(retryPause, laneControl, n.beat)
		case got.stale:
			n.renew()
		default:
			if !got.fenced {
				n.acknowledge(began, got.index)
			}
			next := max(heartbeat-n.clock().Sub(began), 0)
			if got.fenced && n.ready {
				next = heartbeat / 10
			}
			n.do(next, laneControl, n.beat)
		}
	})
}

// renew registers again after the controller called the epoch stale.
func (n *node) renew() {
	n.sent, n.acks = time.Time{}, nil
	n.w.note(n.id, "registers again, epoch %d is stale", n.epoch)
	n.registerUntil(n.w.now+callTimeout, func() { n.do(time.Second, laneControl, n.beat) }, func() { n.do(0, laneControl, n.beat) })
}

// registerUntil asks for an epoch until it is granted, or refused for good.
func (n *node) registerUntil(deadline time.Duration, failed, then func()) {
	c := n.registration()
	began := n.clock()
	n.call(deadline, func(t *term, reply func(any, error)) { t.register(c, reply) }, func(v any, err error) {
		got, ok := v.(registered)
		stale := errors.Is(got.refusal, fsm.StaleBrokerEpoch)
		if err != nil || !ok || got.refusal != nil && !stale {
			failed()
			return
		}
		n.awaitIndex(got.index, func() {
			if stale {
				n.registerUntil(deadline, failed, then)
				return
			}
			n.epoch = got.epoch
			n.acknowledge(began, got.index)
			n.w.note(n.id, "is registered at epoch %d", got.epoch)
			then()
		})
	})
}

// registration is what this process says of itself.
func (n *node) registration() fsm.RegisterBroker {
	c := fsm.RegisterBroker{
		ID: n.id, Folder: n.folder, BootID: n.disk.BootID(),
		Client: fsm.Endpoint{Host: "node", Port: int32(n.id)}, Peer: fsm.Endpoint{Host: "peer", Port: int32(n.id)},
	}
	c.Process[0] = byte(n.id)
	binary.BigEndian.PutUint64(c.Process[8:], uint64(n.life))
	if stop, clean := n.dir.PreviousStop(); clean {
		c.PrevCleanEpoch = fsm.BrokerEpoch(stop.BrokerEpoch)
	}
	cur, _ := n.im.Broker(n.id)
	c.Replaces = cur.Epoch
	return c
}

// ack is an acknowledged heartbeat, and how far the controller's Image had come.
type ack struct {
	sent  time.Time
	index uint64
}

func (n *node) acknowledge(sent time.Time, index uint64) {
	n.acks = append(n.acks, ack{sent, index})
	n.promote()
}

// promote counts the acknowledgements that the roles have caught up with.
func (n *node) promote() {
	for len(n.acks) > 0 && n.reconciled != nil && n.acks[0].index <= n.reconciled.Index() {
		n.sent = n.acks[0].sent
		n.acks = n.acks[1:]
	}
}

// fresh tells whether nobody can have fenced this broker yet: the age is that of
// the sending of the last acknowledged heartbeat, with a margin.
func (n *node) fresh() bool {
	return !n.sent.IsZero() && n.clock().Sub(n.sent) < session-session/8
}

// heardSince is how old the answers of an ISR may be for a leader without a session.
func (n *node) heardSince() time.Time { return n.clock().Add(-2 * heartbeat) }
