package controller

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/fsm"
)

// raftTimeout bounds one Raft call; a snapshot gets more by its size.
const raftTimeout = 2 * time.Second

// raftPool is how many idle connections Raft keeps to one peer: one each for entries,
// heartbeats, votes and the pusher.
const raftPool = 4

// serverID is the name of a node in Raft: its node id and the folder it was born in. It is
// the id and the address alike; hosts and ports are found when dialling, so nodes may move.
func serverID(id fsm.BrokerID, folder [16]byte) raft.ServerID {
	return raft.ServerID(strconv.Itoa(int(id)) + "." + hex.EncodeToString(folder[:]))
}

// parseServerID is serverID backwards; ok is false for "", Raft's "nobody".
func parseServerID(s raft.ServerID) (id fsm.BrokerID, folder [16]byte, ok bool) {
	n, h, found := strings.Cut(string(s), ".")
	i, err := strconv.ParseInt(n, 10, 32)
	b, err2 := hex.DecodeString(h)
	if !found || err != nil || err2 != nil || len(b) != len(folder) {
		return 0, folder, false
	}
	copy(folder[:], b)
	return fsm.BrokerID(i), folder, true
}

// transport is Raft's network transport without the heartbeat fast path: a heartbeat handled
// beside the main loop may change term and state in the middle of an append, after which a
// deposed leader writes entries under the new term. Without a handler the heartbeats go
// through the main loop like every other call.
type transport struct {
	*raft.NetworkTransport
	pusher *pusher
	reach  *reach
	heard  *followerEnds
	// hasRoom tells whether this node's log could take entries if it led.
	hasRoom func() bool
}

// A node that can not be elected asks before it raises its term, so that one which comes back
// deposes nobody.
var _ raft.WithPreVote = (*transport)(nil)

// SetHeartbeatHandler deliberately does nothing.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// errStandsNot is why a node asks for no votes.
var errStandsNot = fmt.Errorf("this node does not stand for election: %w", errNoRoom)

// RequestPreVote asks for no vote while there is no room for the entries of a leader: this node
// would win an election, fail at its first entry, and stand again.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if !t.hasRoom() {
		return errStandsNot
	}
	return t.NetworkTransport.RequestPreVote(id, target, args, resp)
}

// RequestVote is the same for a vote.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.hasRoom() {
		return errStandsNot
	}
	return t.NetworkTransport.RequestVote(id, target, args, resp)
}

// AppendEntries holds entries back from a follower that is away, and notes what each follower
// has, for the pusher.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat, sent := isHeartbeat(args), time.Now()
	if !heartbeat {
		t.reach.await(id)
	}
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	if heartbeat {
		t.reach.heard(id, err)
	}
	if err != nil {
		return err
	}
	if !resp.Success {
		return nil
	}
	end := resp.LastLog // as it was before the entries
	if n := len(args.Entries); n > 0 {
		t.pusher.matched(id, target, args)
		end = max(end, args.Entries[n-1].Index)
	}
	t.heard.noted(id, args.Term, end, t.pusher.known(), sent, time.Now())
	return nil
}

func newTransport(s *raftStream, r *reach, log hclog.Logger) *transport {
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:  log,
		Stream:  s,
		MaxPool: raftPool,
		// 1 keeps Raft off its pipeline, which can wedge after one rejected append.
		MaxRPCsInFlight:         1,
		Timeout:                 raftTimeout,
		MsgpackUseNewTimeFormat: true,
	})
	return &transport{NetworkTransport: inner, pusher: newPusher(inner, s.self), reach: r, heard: newFollowerEnds(), hasRoom: func() bool { return true }}
}

// electNow makes this node stand for election without waiting for a timeout. It is meant for
// a sole voter, which has nobody to wait for, and for the founder of a new cluster.
func (t *transport) electNow(id raft.ServerID) error {
	addr := raft.ServerAddress(id)
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(addr),
	}}
	if err := t.TimeoutNow(id, addr, req, &raft.TimeoutNowResponse{}); err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	return nil
}

// raftStream carries Raft on the peer listener. A connection to this very node is a pipe, so
// that it works whatever the network says.
type raftStream struct {
	self     raft.ServerID
	dial     func(ctx context.Context, to raft.ServerID) (net.Conn, error)
	incoming chan net.Conn
	open     context.Context // until Close
	close    context.CancelFunc
}

func newRaftStream(self raft.ServerID, dial func(context.Context, raft.ServerID) (net.Conn, error)) *raftStream {
	open, cancel := context.WithCancel(context.Background())
	return &raftStream{self: self, dial: dial, incoming: make(chan net.Conn), open: open, close: cancel}
}

// serve hands one accepted connection to Raft and returns when Raft has closed it.
func (s *raftStream) serve(_ Preface, c net.Conn) {
	w := &watchedConn{Conn: c, closed: make(chan struct{})}
	select {
	case s.incoming <- w:
	case <-s.open.Done():
		_ = c.Close()
		return
	}
	<-w.closed
}

// Accept gives Raft its next connection.
func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.open.Done():
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and all calls to others, which Raft's end would wait for one after the
// other where a peer does not answer. It does not close the peer listener.
func (s *raftStream) Close() error {
	s.close()
	return nil
}

// Addr is this node's name in Raft.
func (s *raftStream) Addr() net.Addr { return raftAddr(s.self) }

// Dial reaches another node by its name in Raft.
func (s *raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.open, timeout)
	defer cancel()
	if raft.ServerID(address) != s.self {
		c, err := s.dial(ctx, raft.ServerID(address))
		if err != nil {
			return nil, err
		}
		return &outgoing{Conn: c, forget: context.AfterFunc(s.open, func() { _ = c.Close() })}, nil
	}
	here, there := net.Pipe()
	select {
	case s.incoming <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// outgoing is a connection that ends with its stream.
type outgoing struct {
	net.Conn
	forget func() bool
}

func (o *outgoing) Close() error {
	o.forget()
	return o.Conn.Close()
}

type raftAddr raft.ServerID

func (a raftAddr) Network() string { return "weir" }
func (a raftAddr) String() string  { return string(a) }

// watchedConn tells when it is closed.
type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *watchedConn) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
