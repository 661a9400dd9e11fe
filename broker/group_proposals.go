package broker

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

const (
	// slotCommandBytes is about the most that one SlotCommand holds. A change that
	// is larger goes alone.
	slotCommandBytes = 256 << 10
	// slotCommandTimeout bounds one try to get a SlotCommand into the metadata log.
	slotCommandTimeout = 5 * time.Second
	// slotCommandPause keeps a node without a controller from asking in a tight loop.
	slotCommandPause = 50 * time.Millisecond
)

// slotChange is one change of a group that waits to be proposed.
type slotChange struct {
	what fsm.GroupChange // nil when a later change holds all that this one did
	size int
	// settle is told what became of it, once, under the shard's lock: nil, the
	// Refusal of this change, or that the tenure has ended.
	settle func(err error)
}

// slotQueue holds the changes of one tenure that wait. While one command is on
// its way what comes gathers, so commands grow with the load.
type slotQueue struct {
	changes []*slotChange
	sent    []*slotChange // the changes of the command that is on its way
	// seq is of the last command made. A try that ended without an answer is
	// repeated with the same number and content: it is taken once.
	seq uint64
	// working is set while a worker is at it, or is about to be.
	working bool
}

// propose queues a change. The caller holds the shard's lock and has seen that the tenure lasts.
func (t *tenure) propose(c *slotChange) {
	t.queue.changes = append(t.queue.changes, c)
	if !t.queue.working {
		t.queue.working = true
		t.shard.groups.startWorker(t)
	}
}

// takeCommand makes the next command of what waits; false when nothing does, and
// then the worker has ended.
func (t *tenure) takeCommand() (fsm.SlotCommand, bool) {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	q := &t.queue
	if !t.ended {
		q.sent = q.take()
	}
	if len(q.sent) == 0 {
		q.working = false
		return fsm.SlotCommand{}, false
	}
	q.seq++
	cmd := fsm.SlotCommand{Slot: t.shard.slot, Epoch: t.epoch, Seq: q.seq, Changes: make([]fsm.GroupChange, len(q.sent))}
	for i, c := range q.sent {
		cmd.Changes[i] = c.what
	}
	return cmd, true
}

// take takes the next command's worth of changes out.
func (q *slotQueue) take() []*slotChange {
	var out []*slotChange
	n, size := 0, 0
	for ; n < len(q.changes); n++ {
		c := q.changes[n]
		if c.what == nil {
			continue
		}
		if len(out) > 0 && size+c.size > slotCommandBytes {
			break
		}
		size += c.size
		out = append(out, c)
	}
	clear(q.changes[:n])
	q.changes = q.changes[n:]
	if len(q.changes) == 0 {
		q.changes = nil
	}
	return out
}

// work proposes until nothing waits or the tenure has ended. One worker at a time
// is at a tenure, so one command of a slot is outstanding.
func (t *tenure) work(ctx context.Context) {
	for {
		cmd, ok := t.takeCommand()
		if !ok {
			return
		}
		res, err := t.send(ctx, cmd)
		t.shard.mu.Lock()
		switch {
		case t.ended: // end has answered all
		case err != nil:
			t.end(err)
		default:
			t.settle(res)
		}
		t.shard.mu.Unlock()
	}
}

// settle hands the answers of the command that was taken to its changes.
func (t *tenure) settle(res fsm.Result) {
	some := t.queue.sent
	t.queue.sent = nil
	t.shard.groups.metrics.proposed(len(some))
	for i, c := range some {
		var err error
		if i < len(res.Items) {
			err = res.Items[i]
		}
		c.settle(err)
	}
}

// send gets one command taken, however often that must be tried. An error means
// that the tenure is over: another node has the slot, or this one is closing.
func (t *tenure) send(ctx context.Context, cmd fsm.SlotCommand) (fsm.Result, error) {
	g := t.shard.groups
	for {
		res, err := g.proposeOnce(ctx, cmd)
		switch {
		case err == nil && res.Err == nil:
			return res, nil
		case err == nil && errors.Is(res.Err, fsm.StaleSlotEpoch):
			return res, errNotCoordinator
		case err == nil:
			g.log.Error("the cluster refused what this coordinator decided", "slot", cmd.Slot, "error", res.Err)
			return res, errNotCoordinator
		case errors.Is(err, controller.ErrClosed), ctx.Err() != nil:
			return res, errNotCoordinator
		case !g.owns(t):
			return res, errNotCoordinator
		}
		g.log.Debug("the metadata log has not taken a slot's command yet", "slot", cmd.Slot, "error", err)
		select {
		case <-ctx.Done():
			return res, errNotCoordinator
		case <-time.After(slotCommandPause):
		}
	}
}

func (g *groups) proposeOnce(ctx context.Context, cmd fsm.SlotCommand) (fsm.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, slotCommandTimeout)
	defer cancel()
	return g.propose.Propose(ctx, cmd)
}
