package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
)

// Registration is what a broker tells the controller about itself.
type Registration struct {
	// Client is where clients reach the broker.
	Client fsm.Endpoint
	// Peer is where other nodes reach it; empty takes what the node advertises.
	Peer fsm.Endpoint
	// Rack is broker.rack.
	Rack string
	// BootID is the kernel's boot id: the same one means that no page cache was lost.
	BootID string
	// PrevCleanEpoch is the broker epoch that .clean-shutdown names, 0 without one.
	PrevCleanEpoch fsm.BrokerEpoch

	// process is a nonce, by which a copy of this registration is known.
	process [16]byte
}

// sessionMarginShare is the part of a session that a broker gives up before its end: room
// for clocks of different speed and for the work between the check and its effect.
const sessionMarginShare = 8

// registerPause is how long a refused registration waits before it asks again.
const registerPause = time.Second

// Session is this broker's standing with the controller: one goroutine sends heartbeats and
// registers again when the controller no longer knows the epoch.
type Session struct {
	n    *Node
	log  hclog.Logger
	life time.Duration // Session of the configuration less the margin

	// epoch is the present broker epoch, 0 before the first registration.
	epoch atomic.Int64
	// sent is the BootTime at which the newest heartbeat was sent that was acknowledged and
	// whose acknowledgement this broker has caught up with; 0 for none.
	sent atomic.Int64
	// ready is whether the broker wants to be unfenced.
	ready atomic.Bool
	// reg is what the last call of Register said.
	reg     atomic.Pointer[Registration]
	started atomic.Bool
	nudge   chan struct{}

	// mu guards what follows, and the writes of sent.
	mu sync.Mutex
	// settled is the index of the Image whose roles are in force here. It counts as endless
	// until the broker reports one.
	settled uint64
	// acks are acknowledgements that wait for settled to reach them, oldest first.
	acks []ack
	// suspended: no heartbeat is sent, and acknowledgements do not count.
	suspended bool

	// overdue is whether the loss of the session has been logged; run's goroutine only.
	overdue bool
}

// ack is an acknowledged heartbeat: when it was sent, and how far the controller's Image had
// come when it was answered.
type ack struct {
	sent  time.Duration
	index uint64
}

// maxAcks bounds the acknowledgements that wait: a broker further behind is stale anyway.
const maxAcks = 32

func newSession(n *Node) *Session {
	return &Session{
		settled: math.MaxUint64,
		n:       n, log: n.log.Named("session"), nudge: make(chan struct{}, 1),
		life: n.cfg.Session - n.cfg.Session/sessionMarginShare,
	}
}

// Session returns this broker's standing with the controller. It is never nil.
func (n *Node) Session() *Session { return n.session }

// Epoch is the present broker epoch, 0 before the first registration.
func (s *Session) Epoch() fsm.BrokerEpoch { return fsm.BrokerEpoch(s.epoch.Load()) }

// Valid tells whether nobody can have fenced this broker yet, at the given BootTime. The age
// is counted from the sending of the last heartbeat that was acknowledged: the controller
// counts from its arrival, which is later. An acknowledgement counts only once this broker
// acts on an Image as new as the controller's was: one that was paused, fenced and admitted
// again while its metadata is late would otherwise go on serving what others lead by now.
func (s *Session) Valid(now time.Duration) bool {
	sent := s.sent.Load()
	return sent != 0 && now-time.Duration(sent) < s.life
}

// Settled says that the roles of this broker are those of the Image at index. The broker's
// reconciler calls it after each step.
func (s *Session) Settled(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = index
	s.promoteLocked()
}

// acknowledge takes the answer to a heartbeat or registration.
func (s *Session) acknowledge(a ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended {
		return
	}
	if len(s.acks) == maxAcks {
		s.acks = s.acks[1:]
	}
	s.acks = append(s.acks, a)
	s.promoteLocked()
}

func (s *Session) promoteLocked() {
	for len(s.acks) > 0 && s.acks[0].index <= s.settled {
		s.sent.Store(int64(s.acks[0].sent))
		s.acks = s.acks[1:]
	}
}

// lapse forgets every acknowledgement.
func (s *Session) lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked()
}

func (s *Session) lapseLocked() {
	s.acks = nil
	s.sent.Store(0)
}

// Suspend gives this broker's leaderships up until Resume: from now on Valid is false, and
// no heartbeat is sent, so that the controller fences this broker when its session ends.
func (s *Session) Suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended = true
	s.lapseLocked()
}

// Resume sends heartbeats again. The session is valid once one is acknowledged and this
// broker acts on what has been decided meanwhile, as after any other silence.
func (s *Session) Resume() {
	s.mu.Lock()
	s.suspended = false
	s.mu.Unlock()
	s.wake()
}

func (s *Session) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended
}

// wake has a heartbeat sent at once.
func (s *Session) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// reached is how far this broker acts on its Image.
func (s *Session) reached(im *fsm.Image) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.settled, im.Index())
}

// WantUnfenced says whether the broker is ready to serve; the controller unfences it on the
// next heartbeat, which is sent at once.
func (s *Session) WantUnfenced(want bool) {
	if s.ready.Swap(want) != want {
		s.wake()
	}
}

// Register registers this node as a broker and returns its epoch once the local Image shows
// it. It is called once a process, and waits for a controller until ctx ends. While another folder with the same node id
// has a session, it answers fsm.FolderInUse.
func (n *Node) Register(ctx context.Context, r Registration) (fsm.BrokerEpoch, error) {
	r.process = newUUID()
	n.session.reg.Store(&r)
	epoch, err := n.session.register(ctx)
	if err != nil {
		return 0, fmt.Errorf("register broker %d: %w", n.id.NodeID, err)
	}
	return epoch, nil
}

// StartSession begins to send heartbeats for the registered epoch. It is called once.
func (n *Node) StartSession() *Session {
	if n.session.Epoch() == 0 {
		panic("BUG: a session is started before the broker is registered")
	}
	if !n.session.started.Swap(true) {
		n.goFunc(n.session.run)
	}
	return n.session
}

// register asks for an epoch until it is granted, or refused for good. A registration of
// this id that the local Image did not show yet is looked at first: what it says of its
// predecessor must be of the one that it replaces.
func (s *Session) register(ctx context.Context) (fsm.BrokerEpoch, error) {
	for {
		began := BootTime()
		rep, err := s.n.call(ctx, s.registration())
		if err != nil {
			return 0, err
		}
		got := rep.(*registerReply)
		if got.refusal == fsm.NodeRemoved {
			s.n.leave()
			return 0, s.n.removed()
		}
		if got.refusal != 0 && got.refusal != fsm.StaleBrokerEpoch {
			return 0, got.refusal
		}
		if err := s.n.machine.wait(ctx, got.index); err != nil {
			return 0, err
		}
		if got.refusal == 0 {
			s.epoch.Store(int64(got.epoch))
			s.acknowledge(ack{began, got.index})
			return got.epoch, nil
		}
	}
}

// registration is what this process says of itself.
func (s *Session) registration() *registerRequest {
	r := s.reg.Load()
	peer := r.Peer
	if peer.Host == "" {
		peer = s.n.Advertised()
	}
	cur, _ := s.n.Image().Broker(s.n.id.NodeID)
	return &registerRequest{
		id: s.n.id.NodeID, folder: s.n.id.Folder, process: r.process, bootID: r.BootID,
		client: r.Client, peer: peer, rack: r.Rack, prevClean: r.PrevCleanEpoch, replaces: cur.Epoch,
	}
}

// run sends heartbeats until the node closes.
func (s *Session) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.n.ctx.Done():
			return
		case <-t.C:
		case <-s.nudge:
		}
		t.Reset(s.beat())
	}
}

// beat sends one heartbeat and returns when the next is due.
func (s *Session) beat() time.Duration {
	if s.isSuspended() {
		return s.n.cfg.Heartbeat
	}
	wait := s.n.cfg.Session / 2
	ctx, cancel := context.WithTimeout(s.n.ctx, wait)
	defer cancel()
	began := BootTime()
	tenure, changed := s.n.lead.get()
	im := s.n.Image()
	if im.Removed(s.n.id.NodeID, s.n.id.Folder) {
		s.n.leave()
		return s.n.cfg.Session
	}
	rep, err := s.n.try(ctx, tenure, changed, &heartbeatRequest{
		id: s.n.id.NodeID, epoch: s.Epoch(), applied: im.Index(), hash: im.Hash(), settled: s.reached(im), ready: s.ready.Load(),
	})
	if err != nil {
		s.missed(tenure, BootTime()-began >= wait, err)
		_ = s.n.awaitLeader(s.n.ctx, changed) // then simply the next try
		return 0
	}
	got := rep.(*heartbeatReply)
	if got.diverged {
		s.n.exit(fmt.Errorf("this node's metadata at index %d differs from that of the cluster's majority; restarting reads it anew", im.Index()))
		return s.n.cfg.Session
	}
	if got.stale {
		return s.renew()
	}
	if !got.fenced {
		s.acknowledge(ack{began, got.index})
		s.overdue = false
	} else if s.ready.Load() {
		return s.n.cfg.Heartbeat / 10 // unfencing waits for our roles to catch up
	}
	return max(0, s.n.cfg.Heartbeat-(BootTime()-began))
}

// missed deals with a heartbeat that was not acknowledged. A connection on which the leader
// has been silent for long is given up, for the next try to open a fresh one.
func (s *Session) missed(t tenure, silent bool, err error) {
	if s.n.ctx.Err() != nil {
		return
	}
	if silent {
		s.n.control.drop(t.leader)
	}
	if !s.overdue && !s.Valid(BootTime()) {
		s.overdue = true
		if t.leader == "" {
			s.n.goFunc(func() { s.n.askWhetherRemoved(s.n.ctx) })
		}
		s.log.Warn("no heartbeat is acknowledged: this broker fences itself until one is", "error", err)
	}
}

// renew registers again after the controller called the epoch stale: another process served
// under this node id, or the registration was lost with an unlucky cluster.
func (s *Session) renew() time.Duration {
	s.lapse()
	s.log.Warn("the controller does not know this broker epoch any more; registering again", "epoch", s.Epoch())
	ctx, cancel := context.WithTimeout(s.n.ctx, s.n.cfg.CallTimeout)
	defer cancel()
	epoch, err := s.register(ctx)
	if err == nil {
		s.log.Info("registered again", "epoch", epoch)
		return 0
	}
	if s.n.ctx.Err() == nil {
		level := hclog.Warn
		if errors.Is(err, fsm.FolderInUse) {
			level = hclog.Error
		}
		s.log.Log(level, "this broker can not register", "error", err)
	}
	return registerPause
}
