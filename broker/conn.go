package broker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/weirmq/weir/broker/send"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire"
)

// Pending is the second stage of a request: it reads and waits, until ctx ends
// at the latest, and returns the answer. The connection's writer runs the
// Pendings in the order of their requests.
type Pending func(ctx context.Context) Reply

// Reply is the answer of a request. Ranges are the records of a Fetch, in the
// order of their holes; whoever takes a Reply releases them. Close ends the
// connection instead of an answer, when that is all a client can be told.
type Reply struct {
	Body   wire.Response
	Ranges []storage.Range
	Close  error
}

// Conn is one client connection. Its reader reads requests, runs their first
// stage in order, and passes the second stages to its writer, which runs them in
// the same order and writes the answers.
//
// A slot is taken before a request is read and given back when it has been
// answered, so no more than the slots are in flight; past that the reader stops
// reading and TCP holds the client back.
type Conn struct {
	srv     *server
	c       net.Conn
	address netip.Addr
	frames  frameReader
	slots   chan struct{}
	number  uint64   // of connections that groups know, rising as they come
	quiet   bool     // no request has been read yet; belongs to the reader
	watcher *Watcher // for the writer's waits; made when first needed

	silent    *list.Element // in server.silent while no request has been read; guarded by server.mu
	displaced bool          // it had to make room, and counts no more; guarded by server.mu

	// The writer and its queue begin with the first answer, so that a silent
	// connection costs little. The queue never blocks: it has as much room as
	// there are slots.
	queue  chan answer
	writer sync.WaitGroup
}

// answer is what the writer needs to answer one request.
type answer struct {
	api      *servedAPI
	head     wire.ResponseHead
	pending  Pending
	lease    lease
	received time.Time
	done     chan struct{} // closed when answered, for requests that hold up the next; else nil
}

func newConn(s *server, c net.Conn, address netip.Addr) *Conn {
	conn := &Conn{
		srv:     s,
		c:       c,
		address: address,
		number:  s.backend.groups.conns.Add(1),
		slots:   make(chan struct{}, s.config.MaxInFlight),
		quiet:   true,
	}
	conn.frames = frameReader{
		c:       c,
		limits:  frameLimits{idle: s.config.IdleTimeout, step: s.config.FrameTimeout, most: s.config.MaxRequestBytes, of: s.apiLimits},
		budget:  s.budget,
		buffers: &s.buffers,
		busy:    func() bool { return len(conn.slots) > 1 }, // one is the reader's own
		ended:   s.ended,
	}
	return conn
}

// serve runs the connection until it ends, and returns why.
func (c *Conn) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.read(ctx, cancel)
	if !errors.Is(err, errShuttingDown) {
		cancel(err)
	}
	if c.queue != nil {
		close(c.queue)
		c.writer.Wait()
	}
	c.close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// watch returns the connection's watcher. A signal that an earlier request left
// in it costs one more look.
func (c *Conn) watch() *Watcher {
	if c.watcher == nil {
		c.watcher = NewWatcher()
	}
	return c.watcher
}

// close ends both directions; the reader and the writer notice.
func (c *Conn) close() {
	_ = c.c.Close() // nothing was promised to the client that is not lost anyway
}

// shut ends both directions as close does, and does not wait for a call that is in the
// middle of using the connection.
func (c *Conn) shut() {
	if tcp, ok := c.c.(*net.TCPConn); ok {
		_ = tcp.CloseRead() // an error means that it is over
		_ = tcp.CloseWrite()
		return
	}
	c.close()
}

// stopReading makes the reader end once the server's ended says so.
func (c *Conn) stopReading() {
	_ = c.c.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection
}

// read is the reader: one frame after the other until there are no more.
func (c *Conn) read(ctx context.Context, fail context.CancelCauseFunc) error {
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		fr, err := c.frames.next(ctx)
		if err != nil {
			return err
		}
		if c.quiet {
			c.quiet = false
			c.srv.heard(c)
		}
		a, err := c.submit(ctx, fr)
		if err != nil {
			c.frames.release(fr)
			return err
		}
		if a.pending == nil {
			<-c.slots
			continue
		}
		if c.queue == nil {
			c.queue = make(chan answer, cap(c.slots))
			c.writer.Go(func() { c.write(ctx, fail) }) // ends when the queue is closed
		}
		c.queue <- a
		if a.done != nil {
			<-a.done // the writer answers, or drops what is left, whatever happens
		}
	}
}

// submit decodes one request and runs its first stage. An answer without a second
// stage is none.
func (c *Conn) submit(ctx context.Context, fr *frame) (answer, error) {
	received := time.Now()
	size := len(fr.bytes)
	h, req, err := wire.DecodeRequest(fr.bytes, decodeBudget(size))
	if err != nil {
		return c.undecoded(fr, err, received)
	}
	api := c.srv.served(h.Key)
	if api == nil {
		return answer{}, &frameError{fmt.Sprintf("there is no API with key %d here", h.Key)}
	}
	api.metrics.received(size)
	a := answer{api: api, head: h.Head(), received: received}
	a.pending = api.handle(ctx, c, h, req)
	c.frames.releaseBytes(fr)
	if a.pending == nil || api.brief {
		fr.lease.release()
	}
	a.lease = fr.lease
	if a.pending != nil && api.mutes {
		a.done = make(chan struct{})
	}
	return a, nil
}

// undecoded answers the one request that may be of any version; all others end the connection.
func (c *Conn) undecoded(fr *frame, err error, received time.Time) (answer, error) {
	var u *wire.UnsupportedError
	if !errors.As(err, &u) || u.Key != wire.KeyApiVersions {
		return answer{}, &frameError{err.Error()}
	}
	api := c.srv.served(u.Key)
	api.metrics.received(len(fr.bytes))
	c.frames.releaseBytes(fr)
	return answer{api: api, head: wire.ResponseHead{Key: u.Key, CorrelationID: u.CorrelationID},
		pending: unsupportedApiVersions(c.srv), lease: fr.lease, received: received}, nil
}

// write is the writer. An error ends the connection; from then on it only gives
// back what is left in the queue.
func (c *Conn) write(ctx context.Context, fail context.CancelCauseFunc) {
	failed := false
	for a := range c.queue {
		if !failed {
			if err := c.answer(ctx, &a); err != nil {
				failed = true
				fail(err)
				c.close()
			}
		}
		a.lease.release()
		if a.done != nil {
			close(a.done)
		}
		<-c.slots
	}
}

// answer runs one second stage and writes what it returns.
func (c *Conn) answer(ctx context.Context, a *answer) error {
	reply := a.pending(ctx)
	if reply.Close != nil || ctx.Err() != nil {
		releaseAll(reply.Ranges)
		if reply.Close != nil {
			return reply.Close
		}
		return context.Cause(ctx)
	}
	out := c.srv.responses.get()
	defer c.srv.responses.put(out)
	head, holes, err := wire.EncodeResponse(out.bytes[:0], a.head, reply.Body)
	if err != nil {
		releaseAll(reply.Ranges)
		return fmt.Errorf("encode the response of API %d version %d: %w", a.head.Key, a.head.Version, err)
	}
	out.bytes = head
	size, err := c.send(head, holes, reply.Ranges)
	a.api.metrics.answered(size, time.Since(a.received))
	return err
}

// send writes one response, and releases ranges.
func (c *Conn) send(head []byte, holes []wire.Hole, ranges []storage.Range) (int, error) {
	size := len(head)
	gaps := make([]send.Hole, len(holes))
	for i, h := range holes {
		gaps[i] = send.Hole{At: h.At, Size: h.Size}
		size += h.Size
	}
	return size, send.Response(c.c, head, gaps, ranges, c.srv.config.WriteTimeout)
}

func releaseAll(ranges []storage.Range) {
	for _, r := range ranges {
		r.Release()
	}
}

// ordinary tells whether err is one of the ways in which connections end all the
// time: the client went, or the server stops.
func ordinary(err error) bool {
	for _, end := range []error{io.EOF, net.ErrClosed, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE,
		errShuttingDown, errIdle, errLateCommit, context.Canceled} {
		if errors.Is(err, end) {
			return true
		}
	}
	return err == nil
}
