package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// proxyDial bounds how long a proxy looks for its node.
const proxyDial = 2 * time.Second

// pipe is one direction of one proxied connection.
type pipe struct {
	from, to int    // places
	kind     string // of a peer connection
	reply    bool   // the direction from the node to who dialled it
}

// gate decides about a chunk that a pipe is about to pass on.
type gate interface {
	// check returns how long to wait before asking again, or what to do now.
	check(p pipe, n int, arrived time.Time) verdict
}

type verdict struct {
	wait    time.Duration
	discard bool // drop the chunk, and end the connection after it
}

// holdTick is how often a held pipe looks whether it may go on.
const holdTick = 10 * time.Millisecond

// relay accepts connections at an address that stays its own and passes them to a node.
type relay struct {
	address, upstream string
	gate              gate
	describe          func(c net.Conn) (in, out pipe, head []byte, err error)

	mu       sync.Mutex
	listener net.Listener // nil while nobody listens
	conns    map[net.Conn]bool
	working  sync.WaitGroup
}

func (r *relay) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		return fmt.Errorf("listen for a proxy: %w", err)
	}
	r.listener, r.address, r.conns = l, l.Addr().String(), map[net.Conn]bool{}
	r.working.Add(1)
	go r.accept(l)
	return nil
}

// shut stops listening, so that a dial is refused, ends all connections and waits for them.
func (r *relay) shut() {
	r.mu.Lock()
	l := r.listener
	r.listener = nil
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	if l != nil {
		l.Close()
	}
	r.working.Wait()
}

// keep remembers a connection for shut; false when it is too late.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) forget(c net.Conn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

func (r *relay) accept(l net.Listener) {
	defer r.working.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed by shut
		}
		if !r.keep(c) {
			c.Close()
			return
		}
		r.working.Add(1)
		go func() {
			defer r.working.Done()
			defer r.forget(c)
			r.serve(c)
		}()
	}
}

// serve joins a connection to the node. A node that refuses is shown as a reset.
func (r *relay) serve(c net.Conn) {
	in, out, head, err := r.describe(c)
	if err != nil {
		return
	}
	up, err := net.DialTimeout("tcp", r.upstream, proxyDial)
	if err != nil {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // the dialler may be gone, too
		}
		return
	}
	if !r.keep(up) {
		up.Close()
		return
	}
	defer r.forget(up)
	both := sync.WaitGroup{}
	both.Add(1)
	go func() {
		defer both.Done()
		r.copy(c, up, out, nil)
		c.Close()
		up.Close()
	}()
	r.copy(up, c, in, head)
	c.Close()
	up.Close()
	both.Wait()
}

// chunk is bytes with the time at which they arrived.
type chunk struct {
	bytes   []byte
	arrived time.Time
}

// pipeDepth bounds the chunks under way in one direction: what a wire would hold.
const pipeDepth = 64

// copy passes bytes on as the gate allows, until either side ends. Reading goes on while
// earlier bytes wait, so that a delay does not turn into a limit of throughput.
func (r *relay) copy(dst, src net.Conn, p pipe, head []byte) {
	chunks := make(chan chunk, pipeDepth)
	done := make(chan struct{})
	go func() {
		defer close(chunks)
		if len(head) > 0 {
			chunks <- chunk{head, time.Now()}
		}
		for {
			buf := make([]byte, 16<<10)
			n, err := src.Read(buf)
			if n > 0 {
				select {
				case chunks <- chunk{buf[:n], time.Now()}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		close(done)
		src.Close()
		for range chunks { // until the reader has ended
		}
	}()
	for c := range chunks {
		if !r.pass(dst, p, c) {
			return
		}
	}
}

func (r *relay) pass(dst net.Conn, p pipe, c chunk) bool {
	for {
		v := r.gate.check(p, len(c.bytes), c.arrived)
		if v.discard {
			return false
		}
		if v.wait == 0 {
			break
		}
		time.Sleep(v.wait)
		if !r.serving() {
			return false
		}
	}
	_, err := dst.Write(c.bytes)
	return err == nil
}

func (r *relay) serving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listener != nil
}

// PeerProxy stands before the peer port of one host on loopback and knows from the
// preface who dials.
type PeerProxy struct {
	relay
	host int

	rules sync.Mutex
	cuts  Cuts
	rate  map[int]int       // bytes a second that a place may send
	ready map[int]time.Time // when that place may send again
	held  string            // kind of connection whose requests wait
}

func newPeerProxy(host int, listen, upstream string) (*PeerProxy, error) {
	p := &PeerProxy{host: host, cuts: Cuts{}, rate: map[int]int{}, ready: map[int]time.Time{}}
	p.relay = relay{address: listen, upstream: upstream, gate: p, describe: p.describe}
	return p, p.open()
}

func (p *PeerProxy) setCuts(c Cuts) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.cuts = c
}

func (p *PeerProxy) setRate(from, bytesPerSecond int) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.rate[from] = bytesPerSecond
}

func (p *PeerProxy) setHeld(kind string) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.held = kind
}

// unknownPlace is a dialler that has no node id yet; no rule concerns it.
const unknownPlace = -1

// describe reads the preface: magic, version, kind, size, then cluster id and node id.
func (p *PeerProxy) describe(c net.Conn) (in, out pipe, head []byte, err error) {
	head = make([]byte, 8)
	if _, err = io.ReadFull(c, head); err != nil {
		return in, out, nil, err
	}
	if string(head[:4]) != "WEIR" {
		return in, out, nil, errors.New("not a peer")
	}
	body := make([]byte, binary.BigEndian.Uint16(head[6:]))
	if _, err = io.ReadFull(c, body); err != nil {
		return in, out, nil, err
	}
	from := unknownPlace
	if len(body) > 0 && len(body) >= 1+int(body[0])+4 {
		if id := int(binary.BigEndian.Uint32(body[1+int(body[0]):])); id > 0 {
			from = id
		}
	}
	kinds := map[byte]string{1: "form", 2: "raft", 3: "control", 4: "feed"}
	kind := kinds[head[5]]
	return pipe{from, p.host, kind, false}, pipe{p.host, from, kind, true}, append(head, body...), nil
}

func (p *PeerProxy) check(way pipe, n int, now time.Time) verdict {
	p.rules.Lock()
	defer p.rules.Unlock()
	if p.cuts[Link{way.from, way.to}] != Carried || (!way.reply && p.held != "" && way.kind == p.held) {
		return verdict{wait: holdTick}
	}
	rate := p.rate[way.from]
	if rate == 0 {
		return verdict{}
	}
	if wait := time.Until(p.ready[way.from]); wait > 0 {
		return verdict{wait: min(wait, holdTick)}
	}
	p.ready[way.from] = time.Now().Add(time.Duration(n) * time.Second / time.Duration(rate))
	return verdict{}
}

// Proxy stands before the client port of one host.
type Proxy struct {
	relay
	host int

	rules   sync.Mutex
	cuts    Cuts
	delay   time.Duration
	swallow bool
}

// newProxy listens at an address of the clients' side and passes connections to upstream.
func newProxy(host int, listen, upstream string) (*Proxy, error) {
	p := &Proxy{host: host, cuts: Cuts{}}
	p.relay = relay{address: listen, upstream: upstream, gate: p, describe: func(net.Conn) (pipe, pipe, []byte, error) {
		return pipe{from: Clients, to: host}, pipe{from: host, to: Clients, reply: true}, nil, nil
	}}
	return p, p.open()
}

// Delay makes bytes take this long in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.delay = d
}

// Swallow makes replies vanish and their connections end, while requests go through.
func (p *Proxy) Swallow(on bool) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.swallow = on
}

func (p *Proxy) setCuts(c Cuts) {
	p.rules.Lock()
	defer p.rules.Unlock()
	p.cuts = c
}

func (p *Proxy) check(way pipe, _ int, arrived time.Time) verdict {
	p.rules.Lock()
	defer p.rules.Unlock()
	switch {
	case p.cuts[Link{way.from, way.to}] != Carried:
		return verdict{wait: holdTick}
	case p.swallow && way.reply:
		return verdict{discard: true}
	}
	if wait := p.delay - time.Since(arrived); p.delay > 0 && wait > 0 {
		return verdict{wait: min(wait, holdTick)}
	}
	return verdict{}
}
