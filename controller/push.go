package controller

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pusher tells followers at once that an entry is committed. Problem: Raft's followers learn
// the commit index with the next entry, or from an idle leader every CommitTimeout (50 to
// 100 ms); until then no other node sees the new Image and a forwarded proposal waits.
// Rejected: a shorter CommitTimeout, which costs calls while nothing happens, and an empty
// entry after each one, which costs a write to disk.
//
// What it sends is an AppendEntries call without entries that the leader of that term might
// have sent itself: the entry before it is one that this follower has acknowledged in this
// term and that is committed. Such a call is true for ever; after a later term has begun
// the follower ignores it.
type pusher struct {
	transport *raft.NetworkTransport
	self      raft.ServerID

	mu        sync.Mutex
	committed uint64
	followers map[raft.ServerID]*pushState
	wg        sync.WaitGroup
	closed    bool
	stop      chan struct{} // closed with closed
}

// pushState is what is known of one follower.
type pushState struct {
	target raft.ServerAddress
	// term and matched are the leader's term and the last entry of it that the follower has
	// acknowledged; first is the earliest entry known to be of that term.
	term, first, matched uint64
	// pushed is the highest commit index sent.
	pushed uint64
	// wake tells the follower's goroutine, which wakeLocked starts, that there is something to send.
	wake chan struct{}
}

func newPusher(t *raft.NetworkTransport, self raft.ServerID) *pusher {
	return &pusher{transport: t, self: self, followers: make(map[raft.ServerID]*pushState), stop: make(chan struct{})}
}

// matched notes entries of the leader's own term that a follower acknowledged.
func (p *pusher) matched(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest) {
	last := args.Entries[len(args.Entries)-1]
	if last.Term != args.Term {
		return
	}
	first := last.Index
	for i := len(args.Entries) - 1; i >= 0 && args.Entries[i].Term == args.Term; i-- {
		first = args.Entries[i].Index
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.followers[id]
	if f == nil {
		f = &pushState{}
		p.followers[id] = f
	}
	if f.term != args.Term {
		*f = pushState{term: args.Term, first: first, pushed: f.pushed, wake: f.wake}
	}
	f.target = target
	f.matched = max(f.matched, last.Index)
	p.wakeLocked(id, f)
}

// commit notes that this node's Raft, leading, has committed up to index.
func (p *pusher) commit(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = max(p.committed, index)
	for id, f := range p.followers {
		p.wakeLocked(id, f)
	}
}

// known is the highest index that this node, leading, knows to be committed; 0 for none.
func (p *pusher) known() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed
}

// dueLocked is the commit index to send to a follower, 0 for none.
func (p *pusher) dueLocked(f *pushState) uint64 {
	index := min(p.committed, f.matched)
	if p.closed || index < f.first || index <= f.pushed {
		return 0
	}
	return index
}

// wakeLocked has a follower's goroutine look when there is something to send. It is one that stays:
// encoding a call needs more stack than a goroutine has at first.
func (p *pusher) wakeLocked(id raft.ServerID, f *pushState) {
	if p.dueLocked(f) == 0 {
		return
	}
	if f.wake == nil {
		wake := make(chan struct{}, 1)
		f.wake = wake
		p.wg.Go(func() { p.run(id, f, wake) })
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run pushes to one follower until the pusher is closed.
func (p *pusher) run(id raft.ServerID, f *pushState, wake <-chan struct{}) {
	for {
		select {
		case <-wake:
			p.push(id, f)
		case <-p.stop:
			return
		}
	}
}

func (p *pusher) push(id raft.ServerID, f *pushState) {
	for {
		p.mu.Lock()
		index, term, target := p.dueLocked(f), f.term, f.target
		if index == 0 {
			p.mu.Unlock()
			return
		}
		f.pushed = index
		p.mu.Unlock()
		req := &raft.AppendEntriesRequest{
			RPCHeader:    raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(p.self), Addr: []byte(p.self)},
			Term:         term,
			PrevLogEntry: index, PrevLogTerm: term, LeaderCommitIndex: index,
		}
		// Without an answer the follower learns of it as it always did.
		_ = p.transport.AppendEntries(id, target, req, &raft.AppendEntriesResponse{})
	}
}

// close waits for the calls under way, which end with the transport's connections or their
// timeout.
func (p *pusher) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends within raftTimeout
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(raftTimeout):
	}
}
