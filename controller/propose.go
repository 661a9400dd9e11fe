package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

const (
	// entrySizeMax bounds one Raft entry of packed commands. Larger ones delay heartbeats.
	entrySizeMax = fsm.EntryBytes
	// entriesInFlight is how many packed entries of this node are on their way at once. While
	// all are, waiting commands gather into fuller entries.
	entriesInFlight = 8
	// enqueueTimeout bounds the wait for Raft's main loop to take an entry.
	enqueueTimeout = time.Second
	// wedgeTimeout is how long a leader may fail to commit before the process ends: it lost
	// no lease, so it can reach a majority and yet nothing goes through.
	wedgeTimeout = 15 * time.Second
)

// proposal is one command on its way into the log.
type proposal struct {
	encoded []byte // by fsm.EncodeCommand
	// done gets the outcome, once.
	done chan outcome

	// state is guarded by proposer.mu.
	state proposalState
}

type proposalState uint8

const (
	waiting   proposalState = iota
	sent                    // in an entry that may have reached a leader
	abandoned               // its caller gave up while it waited
)

type outcome struct {
	result fsm.Result
	err    error
}

// proposer packs the commands of this node into entries and gets them to the leader.
type proposer struct {
	n     *Node
	slots chan struct{}
	wake  chan struct{}

	mu     sync.Mutex
	queue  []*proposal
	closed bool
}

func newProposer(n *Node) *proposer {
	return &proposer{n: n, slots: make(chan struct{}, entriesInFlight), wake: make(chan struct{}, 1)}
}

// Propose gets one command into the log and returns its result once this node's Image has
// reached it. A refusal is a result, not an error. ErrNoController: it was not done.
// ErrUnknown: it may or may not have been; the command must be harmless when repeated.
func (n *Node) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	p := &proposal{encoded: fsm.EncodeCommand(nil, c), done: make(chan outcome, 1)}
	n.proposer.add(p)
	select {
	case o := <-p.done:
		return o.result, o.err
	case <-ctx.Done():
	}
	if n.proposer.abandon(p) {
		return fsm.Result{}, fmt.Errorf("propose %T: %w: %w", c, ErrNoController, ctx.Err())
	}
	return fsm.Result{}, fmt.Errorf("propose %T: %w: %w", c, ErrUnknown, ctx.Err())
}

func (ps *proposer) add(p *proposal) {
	ps.change(func(queue []*proposal) []*proposal { return append(queue, p) })
}

// change edits the queue, and answers what is in it when the node is closing.
func (ps *proposer) change(edit func(queue []*proposal) []*proposal) {
	ps.mu.Lock()
	ps.queue = edit(ps.queue)
	closed := ps.closed
	ps.mu.Unlock()
	if closed {
		ps.fail()
		return
	}
	ps.signal()
}

func (ps *proposer) signal() {
	select {
	case ps.wake <- struct{}{}:
	default:
	}
}

// abandon drops a proposal that has not been sent; false means that it has.
func (ps *proposer) abandon(p *proposal) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.state == sent {
		return false
	}
	p.state = abandoned
	return true
}

// run packs and sends until stop closes; then it answers what is left.
func (ps *proposer) run(stop <-chan struct{}) {
	for {
		select {
		case <-ps.wake:
		case <-stop:
			ps.fail()
			return
		}
		for {
			select {
			case ps.slots <- struct{}{}:
			case <-stop:
				ps.fail()
				return
			}
			packed := ps.pack()
			if len(packed) == 0 {
				<-ps.slots
				break
			}
			ps.n.goFunc(func() {
				defer func() { <-ps.slots }()
				ps.send(packed)
			})
		}
	}
}

// pack takes the next entry's worth of commands, marked as sent.
func (ps *proposer) pack() []*proposal {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var out []*proposal
	size, i := 0, 0
	for ; i < len(ps.queue); i++ {
		p := ps.queue[i]
		if p.state == abandoned {
			continue
		}
		if len(out) > 0 && size+len(p.encoded) > entrySizeMax {
			break
		}
		p.state = sent
		size += len(p.encoded)
		out = append(out, p)
	}
	clear(ps.queue[:i])
	ps.queue = ps.queue[i:]
	if len(ps.queue) == 0 {
		ps.queue = nil
	}
	return out
}

// send carries one entry to the leader and hands out the results. What certainly was not
// done goes back to the queue and waits for another leader.
func (ps *proposer) send(packed []*proposal) {
	commands := make([][]byte, len(packed))
	for i, p := range packed {
		commands[i] = p.encoded
	}
	ctx, cancel := context.WithTimeout(ps.n.ctx, ps.n.cfg.CallTimeout)
	defer cancel()
	tenure, changed := ps.n.lead.get()
	rep, err := ps.n.try(ctx, tenure, changed, &proposeRequest{entry: fsm.PackEntry(nil, commands), own: true})
	if errors.Is(err, errNotController) {
		ps.withdraw(packed)
		_ = ps.n.awaitLeader(ctx, changed) // whatever ended the wait, the queue decides
		ps.requeue(packed)
		return
	}
	var r *proposeReply
	if err == nil {
		r = rep.(*proposeReply)
		if len(r.results) != len(packed) {
			err = fmt.Errorf("%w: %d results for %d commands", ErrUnknown, len(r.results), len(packed))
		} else if waitErr := ps.n.machine.wait(ctx, r.index); waitErr != nil {
			err = fmt.Errorf("%w: %w", ErrUnknown, waitErr)
		}
	}
	for i, p := range packed {
		o := outcome{err: err}
		if err == nil {
			o.result = r.results[i]
		}
		p.done <- o
	}
}

// withdraw notes that an entry was not taken: its commands wait again.
func (ps *proposer) withdraw(packed []*proposal) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range packed {
		p.state = waiting
	}
}

// requeue puts commands that were not done back to the front of the queue.
func (ps *proposer) requeue(packed []*proposal) {
	ps.change(func(queue []*proposal) []*proposal { return append(packed, queue...) })
}

// fail answers every waiting command, and those that come later: the node is closing.
func (ps *proposer) fail() {
	ps.mu.Lock()
	ps.closed = true
	queue := ps.queue
	ps.queue = nil
	ps.mu.Unlock()
	for _, p := range queue {
		p.done <- outcome{err: ErrClosed}
	}
}

// apply hands one entry to this node's Raft, which must lead, and waits for its results.
func (n *Node) apply(ctx context.Context, entry []byte) (appliedEntry, error) {
	var f raft.ApplyFuture
	submit := func() raft.Future {
		f = n.raft.Apply(entry, enqueueTimeout)
		return f
	}
	if err := n.awaitRaft(ctx, submit, "commit an entry"); err != nil {
		return appliedEntry{}, err
	}
	a, ok := f.Response().(appliedEntry)
	if !ok {
		panic(fmt.Sprintf("BUG: the machine answered %T", f.Response()))
	}
	if a.err != nil {
		return appliedEntry{}, fmt.Errorf("%w: %w", ErrUnknown, a.err)
	}
	n.transport.pusher.commit(a.index)
	return a, nil
}

// awaitRaft hands something to Raft and waits for its answer with a deadline of our own, since
// Raft's bound only the queueing. The error is errNotController when surely nothing was done,
// else ErrUnknown.
func (n *Node) awaitRaft(ctx context.Context, submit func() raft.Future, what string) error {
	answered := make(chan error, 1)
	if !n.goRaft(func() { answered <- submit().Error() }) {
		return fmt.Errorf("%s: %w: %w", what, errNotController, ErrClosed)
	}
	wedged := time.NewTimer(wedgeTimeout)
	defer wedged.Stop()
	select {
	case err := <-answered:
		return raftOutcome(err, what)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", what, ErrUnknown, ctx.Err())
	case <-wedged.C:
		err := fmt.Errorf("%s: Raft leads but has not answered in %v", what, wedgeTimeout)
		if t, _ := n.lead.get(); t.leading {
			n.exit(err)
		}
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// raftOutcome sorts Raft's errors into "not done" and "unknown".
func raftOutcome(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, errNoRoom):
		return fmt.Errorf("%s: %w: %w", what, errNotController, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnknown, err)
}
