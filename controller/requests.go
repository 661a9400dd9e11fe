package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

// register starts a new incarnation of a broker. The same folder replaces its predecessor at
// once, since only one process can hold its lock; another one waits for the session's end.
// Apply tells a copy of a registration that came before from a new one.
func (t *term) register(ctx context.Context, r *registerRequest) (reply, error) {
	var rep registerReply
	err := t.do(ctx, func() error {
		c := fsm.RegisterBroker{
			ID: r.id, Folder: r.folder, Process: r.process, BootID: r.bootID, Client: r.client, Peer: r.peer,
			Rack: r.rack, PrevCleanEpoch: r.prevClean, Replaces: r.replaces,
		}
		if cur, ok := t.n.Image().Broker(r.id); ok {
			c.SessionLive = t.sessionLive(cur)
		}
		a, err := t.commit(c)
		if err != nil {
			return err
		}
		rep = registerReply{epoch: fsm.BrokerEpoch(a.results[0].Epoch), index: a.index}
		rep.refusal = refusalOf(a.results[0])
		if !refused(a.results[0]) {
			t.live.Heartbeat(r.id, rep.epoch, time.Now())
			t.log.Info("a broker registered", "broker", r.id, "epoch", rep.epoch)
		}
		return nil
	})
	return &rep, err
}

// sessionLive tells whether a registered broker may still be serving. One that is fenced has
// no session left.
func (t *term) sessionLive(b fsm.Broker) bool {
	return !b.Fenced || t.live.Live(b.ID, b.Epoch, time.Now())
}

// heartbeat notes a sign of life and unfences a broker that is ready and has caught up with
// its own registration. It is answered once the leadership is verified.
func (t *term) heartbeat(ctx context.Context, r *heartbeatRequest) (reply, error) {
	arrived := time.Now()
	answered := make(chan beatAnswer, 1)
	err := t.do(ctx, func() error {
		b, ok := t.n.Image().Broker(r.id)
		if !ok || b.Epoch != r.epoch {
			t.beats = append(t.beats, beat{heartbeatReply{stale: true}, answered})
			return nil
		}
		if t.diverged(r) {
			t.beats = append(t.beats, beat{heartbeatReply{diverged: true}, answered})
			return nil
		}
		t.live.Heartbeat(r.id, r.epoch, arrived)
		if r.ready && b.Fenced && !b.Stopping && r.settled >= uint64(b.Epoch) {
			if err := t.commitWithElections(fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}); err != nil {
				return err
			}
			b.Fenced = false
			t.log.Info("a broker is unfenced", "broker", b.ID, "epoch", b.Epoch)
		}
		t.beats = append(t.beats, beat{heartbeatReply{fenced: b.Fenced, index: t.n.Image().Index()}, answered})
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-t.ended:
		return nil, errNotController
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// diverged compares a broker's Image with ours at its index. Apply is the same on every node,
// so a difference is a fault of one of them. When a majority agrees with ours the broker is
// wrong and must stop; when a majority differs from ours this node is, and stops itself;
// until enough have been heard nothing follows.
func (t *term) diverged(r *heartbeatRequest) bool {
	same, known := t.n.machine.agrees(imageHash{r.applied, r.hash})
	if !known {
		return false
	}
	t.agree[r.id] = same
	if same {
		return false
	}
	agree, differ := 0, 0
	for id, s := range t.agree {
		switch {
		case !t.n.votes(id): // a majority is one of those that make the metadata
		case s:
			agree++
		default:
			differ++
		}
	}
	majority := t.n.electorate().size()/2 + 1
	t.log.Error("a broker's metadata differs from the controller's", "broker", r.id, "index", r.applied)
	if differ >= majority {
		t.n.exit(fmt.Errorf("the metadata of this node, the controller, differs from that of %d brokers at index %d", differ, r.applied))
	}
	return agree >= majority
}

// stopBroker marks a broker as stopping and hands its leaderships and slots over in the same entry.
func (t *term) stopBroker(ctx context.Context, r *stopRequest) (reply, error) {
	var rep indexReply
	err := t.do(ctx, func() error {
		stop := fsm.StopBroker{ID: r.id, Epoch: r.epoch}
		im, res := fsm.Apply(t.n.Image(), t.n.Image().Index()+1, stop)
		if refused(res) {
			rep.index = t.n.Image().Index() // another incarnation: nothing of this one is left to stop
			return nil
		}
		t.log.Info("a broker stops; its leaderships move", "broker", r.id)
		for _, entry := range packChanges(append([]fsm.Command{stop}, slotChanges(im)...), elect.HandOff(im, r.id)) {
			a, err := t.commit(entry...)
			if err != nil {
				return err
			}
			rep.index = a.index
		}
		return nil
	})
	return &rep, err
}

// propose commits an entry of another node's commands, or of our own.
func (t *term) propose(ctx context.Context, r *proposeRequest) (reply, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return proposed(t.n.gatherer.apply(ctx, r.entry))
}

// takeProposal is propose of another node, whose answer is told. It waits for nothing: an entry has
// the commits of one node, and the leader gets several hundred a second, each of which would be a
// goroutine that starts with a small stack.
func (n *Node) takeProposal(r *proposeRequest, answer func(reply, error)) {
	err := errNotController
	if n.term.Load() != nil {
		err = r.check()
	}
	if err != nil {
		answer(nil, err)
		return
	}
	n.gatherer.add(&gathered{entry: r.entry, answer: func(a appliedEntry, err error) { answer(proposed(a, err)) }})
}

// check refuses an entry that other nodes could not read. What this node has made it has not read.
func (r *proposeRequest) check() error {
	if r.own {
		return nil
	}
	if _, err := fsm.DecodeEntry(r.entry); err != nil {
		return fmt.Errorf("refuse to commit an entry that does not decode: %w", err)
	}
	return nil
}

func proposed(a appliedEntry, err error) (reply, error) {
	if err != nil {
		return nil, err
	}
	return &proposeReply{index: a.index, results: a.results}, nil
}

// sync names the index that a node must reach to know what the cluster knew when it asked. All that
// was acknowledged before is in our Image; had another controller decided any of it, we would not be
// accepted as leader afterwards.
func (t *term) sync(ctx context.Context) (reply, error) {
	index := t.n.Image().Index()
	if err := t.n.verifyLeader(ctx); err != nil {
		return nil, err
	}
	return &indexReply{index: index}, nil
}
