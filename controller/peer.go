package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// prefaceTimeout bounds how long either side waits for the other's first message.
	prefaceTimeout = 3 * time.Second
	// dialTimeout bounds one try to reach a peer, preface included. Peers answer at once,
	// so a longer wait only lengthens a failover.
	dialTimeout = time.Second
	// peerConnsMax bounds the open peer connections: a handful for each node of the largest
	// cluster we aim at, far below what a process may open.
	peerConnsMax = 1024
	// prefacingMax bounds the connections that have not shown a valid preface yet.
	prefacingMax = 128
)

// peers is the peer listener: it accepts connections, checks their preface and hands each
// to the handler of its kind.
type peers struct {
	listener net.Listener
	log      hclog.Logger
	// self is this node's side of every preface exchange.
	self func() answer
	// admit judges a preface; nil means welcome.
	admit     func(Preface) *RefusedError
	prefacing chan struct{}
	// patience is how long a dialler may take for its preface.
	patience time.Duration
	wg       sync.WaitGroup

	mu       sync.Mutex
	handlers map[Kind]func(Preface, net.Conn)
	conns    map[net.Conn]struct{}
	closed   bool
}

func newPeers(l net.Listener, log hclog.Logger, self func() answer, admit func(Preface) *RefusedError) *peers {
	return &peers{
		listener: l, log: log, self: self, admit: admit,
		prefacing: make(chan struct{}, prefacingMax),
		patience:  prefaceTimeout,
		handlers:  make(map[Kind]func(Preface, net.Conn)),
		conns:     make(map[net.Conn]struct{}),
	}
}

// handle registers the handler of one kind. It owns the connections it is given and may
// return before they end; those it still holds when the listener closes are closed.
func (ps *peers) handle(k Kind, fn func(Preface, net.Conn)) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.handlers[k] = fn
}

// start begins to accept; close stops it.
func (ps *peers) start() {
	ps.wg.Add(1)
	go ps.accept()
}

// close stops accepting, closes what handlers still hold and waits for them.
func (ps *peers) close() {
	ps.mu.Lock()
	ps.closed = true
	for c := range ps.conns {
		_ = c.Close()
	}
	ps.mu.Unlock()
	_ = ps.listener.Close()
	ps.wg.Wait()
}

func (ps *peers) accept() {
	defer ps.wg.Done()
	for {
		c, err := ps.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if ps.isClosed() {
				return
			}
			ps.log.Error("peer port cannot accept", "error", err)
			pause(acceptPause)
			continue
		}
		if !ps.track(c) {
			_ = c.Close()
			continue
		}
		go ps.serve(c)
	}
}

// acceptPause keeps a failing accept (no descriptors left) from spinning.
const acceptPause = 50 * time.Millisecond

func pause(d time.Duration) { <-time.After(d) }

func (ps *peers) isClosed() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.closed
}

// track counts a connection; false means that it is one too many or that we are closing.
func (ps *peers) track(c net.Conn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed || len(ps.conns) >= peerConnsMax {
		return false
	}
	select {
	case ps.prefacing <- struct{}{}:
	default:
		return false
	}
	ps.conns[c] = struct{}{}
	ps.wg.Add(1)
	return true
}

func (ps *peers) untrack(c net.Conn) {
	ps.mu.Lock()
	delete(ps.conns, c)
	ps.mu.Unlock()
	ps.wg.Done()
}

// serve runs one accepted connection: preface, answer, handler.
func (ps *peers) serve(c net.Conn) {
	defer ps.untrack(c)
	p, fn, err := ps.greet(c)
	<-ps.prefacing
	if err != nil {
		_ = c.Close()
		if quiet := errors.Is(err, io.EOF) || ps.isClosed(); !quiet {
			ps.log.Warn("peer connection closed", "remote", c.RemoteAddr().String(), "error", err)
		}
		return
	}
	fn(p, c)
}

// greet reads the preface and answers it.
func (ps *peers) greet(c net.Conn) (Preface, func(Preface, net.Conn), error) {
	_ = c.SetDeadline(time.Now().Add(ps.patience))
	p, err := readPreface(c)
	var other *versionError
	if errors.As(err, &other) {
		ps.refuse(c, &RefusedError{RefusedVersion, other.Error()})
		return p, nil, err
	}
	if err != nil {
		return p, nil, fmt.Errorf("read the preface: %w", err)
	}
	ps.mu.Lock()
	fn := ps.handlers[p.Kind]
	ps.mu.Unlock()
	refusal := ps.admit(p)
	if refusal == nil && fn == nil {
		refusal = &RefusedError{RefusedNotReady, fmt.Sprintf("this node does not serve %s connections yet", p.Kind)}
	}
	if refusal != nil {
		ps.refuse(c, refusal)
		if refusal.Code == RefusedNotReady {
			return p, nil, io.EOF // routine while nodes start: the dialler says what it waits for
		}
		return p, nil, fmt.Errorf("refused a %s connection of node %d: %s", p.Kind, p.NodeID, refusal.Sentence)
	}
	if err := writeAnswer(c, ps.self()); err != nil {
		return p, nil, fmt.Errorf("answer the preface: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	return p, fn, nil
}

func (ps *peers) refuse(c net.Conn, r *RefusedError) {
	a := ps.self()
	a.code, a.sentence = r.Code, r.Sentence
	_ = writeAnswer(c, a) // the connection is closed next; nothing is left to do about an error
}

// dialPeer opens a connection and exchanges prefaces. expect judges who answered.
func dialPeer(ctx context.Context, addr string, p Preface, expect func(answer) error) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := dialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = introduce(c, p, expect)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("open a %s connection to %s: %w", p.Kind, addr, err)
	}
	return c, nil
}

// dialTCP connects and says nothing.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: peerKeepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

// peerKeepAlive finds a peer whose host vanished without closing its connections.
var peerKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

func introduce(c net.Conn, p Preface, expect func(answer) error) error {
	if err := writePreface(c, p); err != nil {
		return err
	}
	a, err := readAnswer(c)
	if err != nil {
		return err
	}
	if a.code != accepted {
		return &RefusedError{a.code, a.sentence}
	}
	return expect(a)
}
