package controller

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/wire/codec"
)

const (
	// frameSizeMax bounds a control frame: an entry, or a topic of many partitions.
	frameSizeMax = 8 << 20
	// frameHeadSize is length, correlation id and op or status.
	frameHeadSize = 4 + 8 + 1
	// frameWriteTimeout bounds the wait for the other side to take a frame.
	frameWriteTimeout = 2 * time.Second
	// frameQueue is how many frames wait for a connection's writer.
	frameQueue = 64
	// gatheredBytes of frames that wait at the same time are enough for one write.
	gatheredBytes = 32 << 10
	// inlineBytes bounds the entries that a connection's reader checks itself.
	inlineBytes = 64 << 10
	// callsMax is how many calls of one connection are served at once; more wait unread.
	callsMax = 128
	// retireAfter is how long calls still wait on a connection to a former leader: it may
	// yet answer what it had taken.
	retireAfter = 500 * time.Millisecond
)

// encodeFrame makes a frame: length, correlation id, op or status, body.
func encodeFrame(id uint64, second uint8, body interface{ code(*codec.Coder) }) []byte {
	head := make([]byte, frameHeadSize, 256)
	binary.BigEndian.PutUint64(head[4:], id)
	head[12] = second
	c := codec.NewWriter(head).Flexible(true)
	if body != nil {
		body.code(c)
	}
	if err := c.Err(); err != nil {
		panic(fmt.Sprintf("BUG: encode a control frame: %v", err))
	}
	frame := c.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// readFrame reads one frame; the body is the caller's.
func readFrame(r io.Reader) (id uint64, second uint8, body []byte, err error) {
	var head [frameHeadSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - (frameHeadSize - 4)
	if size < 0 || size > frameSizeMax {
		return 0, 0, nil, fmt.Errorf("control frame of %d bytes is out of bounds", size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, 0, nil, err
	}
	return binary.BigEndian.Uint64(head[4:]), head[12], body, nil
}

func decodeBody(p []byte, m interface{ code(*codec.Coder) }) error {
	c := codec.NewReader(p, 4*codec.Budget(len(p))).Flexible(true)
	m.code(c)
	return c.End()
}

// text is the body of an answer that is a sentence.
type text struct{ s string }

func (t *text) code(c *codec.Coder) { c.String(&t.s) }

// link is one control connection: a writer goroutine that owns the sending side, and a
// closed signal. The reader is whoever runs the connection.
type link struct {
	conn   net.Conn
	out    chan []byte
	once   sync.Once
	closed chan struct{}
}

func newLink(c net.Conn) *link {
	return &link{conn: c, out: make(chan []byte, frameQueue), closed: make(chan struct{})}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.conn.Close()
	})
}

// send queues a frame; false means that the link is closed and the frame was not queued.
func (l *link) send(ctx context.Context, frame []byte) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.out <- frame:
		return true
	case <-l.closed:
		return false
	case <-ctx.Done():
		return false
	}
}

// trySend queues a frame if there is room at once.
func (l *link) trySend(frame []byte) bool {
	select {
	case l.out <- frame:
		return true
	default:
		return false
	}
}

// write sends what is queued, in one piece what waits at the same time: the answers to all that
// went into one entry of the log come together.
func (l *link) write() {
	defer l.close()
	var several []byte
	for {
		select {
		case frame := <-l.out:
			if len(l.out) > 0 {
				several = l.gather(append(several[:0], frame...))
				frame = several
			}
			_ = l.conn.SetWriteDeadline(time.Now().Add(frameWriteTimeout))
			if _, err := l.conn.Write(frame); err != nil {
				return
			}
			if cap(several) > 2*gatheredBytes {
				several = nil
			}
		case <-l.closed:
			return
		}
	}
}

// gather appends frames that wait until there is enough for a write.
func (l *link) gather(to []byte) []byte {
	for len(to) < gatheredBytes {
		select {
		case frame := <-l.out:
			to = append(to, frame...)
		default:
			return to
		}
	}
	return to
}

// serveControl answers the calls on one accepted control connection.
func (n *Node) serveControl(p Preface, c net.Conn) {
	l := newLink(c)
	ctx, cancel := context.WithCancel(n.ctx)
	stop := context.AfterFunc(ctx, l.close)
	var calls sync.WaitGroup
	calls.Go(l.write)
	err := n.readCalls(ctx, l, p, &calls)
	stop()
	cancel()
	l.close()
	calls.Wait()
	if err != nil && n.ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		n.log.Debug("control connection ended", "node", p.NodeID, "error", err)
	}
	if t := n.term.Load(); t != nil {
		t.suspect(p.NodeID)
	}
}

func (n *Node) readCalls(ctx context.Context, l *link, p Preface, calls *sync.WaitGroup) error {
	r := bufio.NewReader(l.conn)
	slots := make(chan struct{}, callsMax)
	for {
		id, o, body, err := readFrame(r)
		if err != nil {
			return err
		}
		req := newRequest(op(o))
		if req == nil {
			l.send(ctx, encodeFrame(id, uint8(statusBad), &text{fmt.Sprintf("unknown call %d", o)}))
			continue
		}
		if err := decodeBody(body, req); err != nil {
			l.send(ctx, encodeFrame(id, uint8(statusBad), &text{fmt.Sprintf("decode call %d: %v", o, err)}))
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if r, ok := req.(*proposeRequest); ok && len(r.entry) <= inlineBytes {
			n.takeProposal(r, func(rep reply, err error) {
				if frame := answerFrame(id, rep, err); !l.trySend(frame) {
					n.goFunc(func() { l.send(ctx, frame) }) // ends when there is room, or with the link
				}
				<-slots
			})
			continue
		}
		calls.Go(func() {
			defer func() { <-slots }()
			rep, err := n.decide(ctx, req)
			l.send(ctx, answerFrame(id, rep, err))
		})
	}
}

func answerFrame(id uint64, rep reply, err error) []byte {
	switch {
	case err == nil:
		return encodeFrame(id, uint8(statusOK), rep)
	case errors.Is(err, errNotController):
		return encodeFrame(id, uint8(statusNotController), &text{err.Error()})
	}
	return encodeFrame(id, uint8(statusUnknown), &text{err.Error()})
}

// decide runs a call if this node is the controller now, or if it is one that any broker answers.
func (n *Node) decide(ctx context.Context, req request) (reply, error) {
	switch r := req.(type) {
	case *logEndsRequest:
		return n.answerLogEnds(r)
	case *goneRequest:
		return n.answerGone(ctx, r), nil
	case *heardRequest:
		return n.answerHeard(r)
	}
	t := n.term.Load()
	if t == nil {
		return nil, errNotController
	}
	switch r := req.(type) {
	case *registerRequest:
		return t.register(ctx, r)
	case *heartbeatRequest:
		return t.heartbeat(ctx, r)
	case *proposeRequest:
		return t.propose(ctx, r)
	case *createTopicsRequest:
		return t.createTopics(ctx, r)
	case *deleteTopicsRequest:
		return t.deleteTopics(ctx, r)
	case *stopRequest:
		return t.stopBroker(ctx, r)
	case *refusedRequest:
		t.suspect(r.id)
		return &indexReply{}, nil
	case *syncRequest:
		return t.sync(ctx)
	case *alterTopicsRequest:
		return t.alterTopics(ctx, r)
	case *addPartitionsRequest:
		return t.addPartitions(ctx, r)
	case *electRequest:
		return t.electLeadersAsked(ctx, r)
	case *quorumRequest:
		return t.quorum(ctx)
	case *reassignRequest:
		return t.reassign(ctx, r)
	case *joinRequest:
		return t.admitNode(ctx, r)
	case *addVoterRequest:
		return t.addVoter(ctx, r)
	case *removeVoterRequest:
		return t.removeVoter(ctx, r)
	case *removeNodeRequest:
		return t.removeNode(ctx, r)
	}
	panic(fmt.Sprintf("BUG: no way to decide %T", req))
}

// callAndSee is call, and a wait until the local Image shows what was decided, within the same
// time.
func (n *Node) callAndSee(ctx context.Context, req request) (visible, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	rep, err := n.call(ctx, req)
	if err != nil {
		return nil, err
	}
	got := rep.(visible)
	if err := n.machine.wait(ctx, got.visibleFrom()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return got, nil
}

// visible is the reply to what an Image shows.
type visible interface {
	reply
	visibleFrom() uint64 // the index from which on Images do
}

// call gets a request decided, here or on whichever node leads, until ctx ends. It repeats
// what was surely not done, and what may be done twice.
func (n *Node) call(ctx context.Context, req request) (reply, error) {
	ctx, cancel := n.bounded(ctx)
	defer cancel()
	uncertain := false
	for {
		tenure, changed := n.lead.get()
		rep, err := n.try(ctx, tenure, changed, req)
		if err == nil {
			return rep, nil
		}
		unknown := errors.Is(err, ErrUnknown)
		if !errors.Is(err, errNotController) && !(unknown && req.repeatable()) {
			return nil, err
		}
		uncertain = uncertain || unknown
		if r, ok := req.(interface{ renewed() request }); ok && unknown {
			req = r.renewed()
		}
		if waitErr := n.awaitLeader(ctx, changed); waitErr == nil {
			continue
		}
		if n.ctx.Err() != nil {
			return nil, ErrClosed
		}
		if uncertain {
			return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoController, err)
	}
}

// try makes one attempt to have a request decided by the leader of tenure.
func (n *Node) try(ctx context.Context, t tenure, changed <-chan struct{}, req request) (reply, error) {
	switch {
	case t.leading:
		return n.decide(ctx, req)
	case t.leader == "":
		return nil, fmt.Errorf("%w: no leader is known", errNotController)
	}
	l, err := n.control.to(ctx, t.leader, changed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotController, err)
	}
	if !req.repeatable() {
		changed = nil // the former leader may yet answer
	}
	return l.call(ctx, changed, req)
}

// retryPause is how long a call waits before it asks again when nothing has changed.
const retryPause = 20 * time.Millisecond

// awaitLeader returns nil when another try makes sense: the leadership changed, or a while passed.
func (n *Node) awaitLeader(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-changed:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return ErrClosed
	}
}

// bounded gives ctx the node's call timeout unless it has a deadline.
func (n *Node) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.cfg.CallTimeout)
}

// controlLinks keeps the one connection to the present leader.
type controlLinks struct {
	n *Node

	mu      sync.Mutex
	cur     *callLink
	dialing *dialing
}

// dialing is a dial that several calls wait for.
type dialing struct {
	to   raft.ServerID
	done chan struct{}
	// link and err are set before done closes.
	link *callLink
	err  error
}

// to returns a live connection to the leader, dialling if there is none and for as long as
// it leads. The connection to a former leader is retired.
func (cl *controlLinks) to(ctx context.Context, leader raft.ServerID, changed <-chan struct{}) (*callLink, error) {
	cl.mu.Lock()
	if cl.cur != nil && cl.cur.peer == leader && !cl.cur.isClosed() {
		defer cl.mu.Unlock()
		return cl.cur, nil
	}
	if old := cl.cur; old != nil {
		cl.cur = nil
		time.AfterFunc(retireAfter, old.close)
	}
	d := cl.dialing
	if d == nil || d.to != leader {
		d = &dialing{to: leader, done: make(chan struct{})}
		cl.dialing = d
		cl.n.goFunc(func() { cl.dial(d) })
	}
	cl.mu.Unlock()
	select {
	case <-d.done:
		return d.link, d.err
	case <-changed:
		return nil, errors.New("the leader changed while it was dialled")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial opens a connection for those who wait on d. The connection ends with the node.
func (cl *controlLinks) dial(d *dialing) {
	c, err := cl.n.dialServer(cl.n.ctx, d.to, KindControl)
	if err == nil {
		d.link = newCallLink(d.to, c)
		stop := context.AfterFunc(cl.n.ctx, d.link.close)
		cl.n.goFunc(d.link.write)
		cl.n.goFunc(func() {
			defer stop()
			d.link.read()
			cl.n.succeed(d.to)
		})
	}
	d.err = err
	cl.mu.Lock()
	if cl.dialing == d {
		cl.dialing = nil
		cl.cur = d.link
	} else if d.link != nil {
		time.AfterFunc(retireAfter, d.link.close) // another leader meanwhile: only its waiters use it
	}
	cl.mu.Unlock()
	close(d.done)
	if err != nil {
		cl.n.succeed(d.to)
	}
}

// drop closes the connection to a leader that does not answer.
func (cl *controlLinks) drop(leader raft.ServerID) {
	cl.mu.Lock()
	l := cl.cur
	cl.mu.Unlock()
	if l != nil && l.peer == leader {
		l.close()
	}
}

// callLink is the calling side of a control connection, shared by correlation id.
type callLink struct {
	*link
	peer raft.ServerID

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan callAnswer
}

type callAnswer struct {
	status status
	body   []byte
}

func newCallLink(peer raft.ServerID, c net.Conn) *callLink {
	return &callLink{link: newLink(c), peer: peer, pending: make(map[uint64]chan callAnswer)}
}

func (l *callLink) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// call sends one request and waits for its answer, for the end of the connection, for ctx,
// or, when changed is given, for another leader.
func (l *callLink) call(ctx context.Context, changed <-chan struct{}, req request) (reply, error) {
	id, answered := l.expect()
	defer l.forget(id)
	if !l.send(ctx, encodeFrame(id, uint8(req.op()), req)) {
		return nil, fmt.Errorf("%w: the connection to %s is closed", errNotController, l.peer)
	}
	select {
	case a := <-answered:
		return readReply(req.op(), a)
	case <-l.closed:
	case <-changed:
		return nil, fmt.Errorf("%w: the leader has changed", ErrUnknown)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
	select {
	case a := <-answered: // it came just before the end
		return readReply(req.op(), a)
	default:
		return nil, fmt.Errorf("%w: the connection to %s ended", ErrUnknown, l.peer)
	}
}

func readReply(o op, a callAnswer) (reply, error) {
	if a.status == statusOK {
		rep := newReply(o)
		if err := decodeBody(a.body, rep); err != nil {
			return nil, fmt.Errorf("%w: decode the answer to call %d: %w", ErrUnknown, o, err)
		}
		return rep, nil
	}
	var t text
	if err := decodeBody(a.body, &t); err != nil {
		t.s = err.Error()
	}
	switch a.status {
	case statusNotController:
		return nil, fmt.Errorf("%w: %s", errNotController, t.s)
	case statusBad:
		return nil, fmt.Errorf("the controller does not understand the call: %s", t.s)
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, t.s)
}

func (l *callLink) expect() (uint64, chan callAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	ch := make(chan callAnswer, 1)
	l.pending[l.next] = ch
	return l.next, ch
}

func (l *callLink) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

// read hands answers to their calls until the connection ends.
func (l *callLink) read() {
	defer l.close()
	r := bufio.NewReader(l.conn)
	for {
		id, s, body, err := readFrame(r)
		if err != nil {
			return
		}
		l.mu.Lock()
		ch := l.pending[id]
		delete(l.pending, id)
		l.mu.Unlock()
		if ch != nil {
			ch <- callAnswer{status(s), body}
		}
	}
}
