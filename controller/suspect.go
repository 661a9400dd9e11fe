package controller

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/weirmq/weir/fsm"
)

// redialPauses lie between the dials of a suspected broker. Two refusals in a row end its
// session; a process that restarts takes longer than that.
var redialPauses = [...]time.Duration{
	40 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 160 * time.Millisecond, 320 * time.Millisecond, 0,
}

// suspect looks into a report, or a closed connection, that speaks for the end of a broker.
func (t *term) suspect(id fsm.BrokerID) {
	t.post(t.ctx, func() { t.probe(id) })
}

// probe redials a broker. Two refusals end its session: nothing listens where it did, or a
// firewall says so. A timeout says nothing, since the broker may be alive behind a broken network.
func (t *term) probe(id fsm.BrokerID) {
	b, ok := t.n.Image().Broker(id)
	if !ok || b.Fenced || id == t.n.id.NodeID || t.probing[id] {
		return
	}
	t.probing[id] = true
	t.n.goFunc(func() {
		t.redial(b)
		t.post(t.ctx, func() { delete(t.probing, id) })
	})
}

// redial dials a suspected broker a few times.
func (t *term) redial(b fsm.Broker) {
	refused := func() bool { return refuses(t.ctx, endpointAddr(b.Peer)) }
	once := func() { t.post(t.ctx, func() { t.live.Reported(b.ID, b.Epoch, time.Now()) }) }
	if refusedTwice(t.ctx, refused, once, func() bool { return false }) {
		t.post(t.ctx, func() {
			t.log.Warn("a broker's peer port refuses connections", "broker", b.ID)
			t.live.Refused(b.ID, b.Epoch, time.Now())
		})
	}
}

// refusedTwice dials some times at most, and tells whether two dials in a row were refused. It
// calls once after the first of a row, and gives up when it is over or ctx ends. The first dials
// may still succeed: a process that ends closes its connections and its listener one after
// the other.
func refusedTwice(ctx context.Context, refused func() bool, once func(), over func() bool) bool {
	refusals := 0
	for _, pause := range redialPauses {
		if !refused() {
			refusals = 0
		} else if refusals++; refusals == 2 {
			return true
		} else {
			once()
		}
		if !breathe(ctx, pause) || over() {
			return false
		}
	}
	return false
}

// refuses tells whether a dial is refused by the host: there is no process any more. A firewall that
// refuses looks the same.
func refuses(ctx context.Context, addr string) bool {
	c, err := dialTCP(ctx, addr)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// breathe waits; false means that ctx ended.
func breathe(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
