package controller

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// fireNet carries connections between nodes. What is written on a way that is cut waits.
type fireNet struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	cuts    map[[2]raft.ServerID]bool
	changed chan struct{}
	// oneWay is how many ways stopped something while the way back was open; bitten are those
	// that have been counted since they were cut.
	oneWay int
	bitten map[[2]raft.ServerID]bool
}

func (w *fireNet) set(from, to raft.ServerID, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]raft.ServerID{from, to}] = cut && from != to
}

func (w *fireNet) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	clear(w.bitten)
	close(w.changed)
	w.changed = make(chan struct{})
}

// cut tells whether what is to be sent now has to wait, and gives what is closed when that may be over.
func (w *fireNet) cut(from, to raft.ServerID) (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	way := [2]raft.ServerID{from, to}
	cut := w.cuts[way]
	if cut && !w.bitten[way] && !w.cuts[[2]raft.ServerID{to, from}] {
		w.bitten[way] = true
		w.oneWay++
	}
	return cut, w.changed
}

func (w *fireNet) dial(from, to *fireNode) (net.Conn, error) {
	if cut, _ := w.cut(from.id, to.id); cut {
		return nil, errors.New("the dial goes nowhere")
	}
	stream := to.stream.Load()
	if stream == nil {
		return nil, errors.New("the node has not started yet")
	}
	here, there := net.Pipe()
	closed := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(closed) }) }
	w.wg.Go(func() {
		stream.serve(Preface{}, &fireConn{Conn: there, net: w, from: to.id, to: from.id, closed: closed, end: end})
	})
	return &fireConn{Conn: here, net: w, from: from.id, to: to.id, closed: closed, end: end}, nil
}

// fireConn is one end of a connection.
type fireConn struct {
	net.Conn
	net      *fireNet
	from, to raft.ServerID
	closed   chan struct{} // by either end
	end      func()
	deadline atomic.Int64 // in ns of the Unix epoch, 0 for none
}

// Write waits until the way is open.
func (c *fireConn) Write(p []byte) (int, error) {
	for {
		cut, changed := c.net.cut(c.from, c.to)
		if !cut {
			return c.Conn.Write(p)
		}
		patience := time.Hour
		if d := c.deadline.Load(); d != 0 {
			patience = time.Until(time.Unix(0, d))
		}
		select {
		case <-changed:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-time.After(patience):
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// SetDeadline is also that of a Write that waits.
func (c *fireConn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(t.UnixNano())
	}
	return c.Conn.SetDeadline(t)
}

// Close ends both directions.
func (c *fireConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// pausedDisk is the store, which can stand still.
type pausedDisk struct {
	backing
	pauser *pauser
	stored func([]*raft.Log) // is told of what was stored
}

// pauser outlives the process whose disk it holds up.
type pauser struct {
	refused atomic.Int64 // writes for want of room
	stopped atomic.Int64 // pauses that held up a write

	mu   sync.Mutex
	gate chan struct{} // closed when it goes on; nil while it does
	held bool          // a write, in this pause
}

func (p *pauser) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate, p.held = make(chan struct{}), false
	}
}

func (p *pauser) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

func (p *pauser) wait() {
	p.mu.Lock()
	gate := p.gate
	if gate != nil && !p.held {
		p.held = true
		p.stopped.Add(1)
	}
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (d pausedDisk) StoreLogs(ls []*raft.Log) error {
	d.pauser.wait()
	err := d.backing.StoreLogs(ls)
	if errors.Is(err, errNoRoom) {
		d.pauser.refused.Add(1)
	}
	if err == nil {
		d.stored(ls)
	}
	return err
}

func (d pausedDisk) Set(k, v []byte) error {
	d.pauser.wait()
	return d.backing.Set(k, v)
}

func (d pausedDisk) SetUint64(k []byte, v uint64) error {
	d.pauser.wait()
	return d.backing.SetUint64(k, v)
}
