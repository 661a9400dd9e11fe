package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

const (
	// redialMin and redialMax bound the pause before a leader is dialled again:
	// short, since every millisecond of it is one without replication.
	redialMin = 50 * time.Millisecond
	redialMax = 250 * time.Millisecond
	// lasting is how long a connection must have lived to be dialled again without a pause.
	lasting = time.Second
	// pendingMax bounds the frames of one write to a leader.
	pendingMax = 256
	// feedBuffer is the read buffer of one leader connection; larger payloads bypass it.
	feedBuffer = 64 << 10
)

// peerDialer is what the feed needs of the controller's node.
type peerDialer interface {
	// DialFeed opens a feed connection to a node.
	DialFeed(ctx context.Context, id fsm.BrokerID) (net.Conn, error)
	// ReportRefused tells the controller that a node refused to be dialled.
	ReportRefused(id fsm.BrokerID)
}

// follower is this node's side of the feed from one leader node: one connection
// for all partitions that this node follows there. It has one goroutine that
// dials and reads, and one that writes while connected.
//
// mu comes before the locks of partitions.
type follower struct {
	leader  fsm.BrokerID
	env     *environment
	dialer  peerDialer
	buffers *buffers
	silence time.Duration // a leader that sends nothing for so long is dialled again
	log     hclog.Logger
	wake    chan struct{} // capacity 1: the core has something to send
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	wanted   map[*Partition]batch.Epoch // what is to be followed, by leader epoch
	core     *feed.Follower             // nil while there is no connection
	troubles map[*Partition]trouble     // that cannot take what the leader sends
}

// set follows p in the given epoch; p has become a follower in it already.
func (f *follower) set(p *Partition, epoch batch.Epoch) {
	f.mu.Lock()
	f.wanted[p] = epoch
	f.addLocked(p, epoch)
	f.mu.Unlock()
	f.signal()
}

// drop stops following p and tells whether nothing is left to follow.
func (f *follower) drop(p *Partition) bool {
	f.mu.Lock()
	delete(f.wanted, p)
	delete(f.troubles, p)
	if f.core != nil {
		f.core.Remove(p.tp)
	}
	empty := len(f.wanted) == 0
	f.mu.Unlock()
	f.signal()
	return empty
}

// flushed reports how far p's log is on the disk. It is read under the lock, so
// that nothing which the core has heard of the log comes between.
func (f *follower) flushed(p *Partition) {
	f.mu.Lock()
	if f.core != nil {
		f.core.Flushed(p.tp, p.log.Flushed())
	}
	f.mu.Unlock()
	f.signal()
}

func (f *follower) addLocked(p *Partition, epoch batch.Epoch) {
	if f.core == nil {
		return
	}
	// A partition that has left the epoch is set again by the reconciler.
	if local, err := p.local(epoch); err == nil {
		f.core.Add(p.tp, epoch, local)
	}
}

func (f *follower) signal() { wakeUp(f.wake) }

// run keeps one connection open until ctx ends. A connection that lasted is
// dialled again at once: if the leader's process is gone, the refusal is the
// first to tell.
func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	pause := redialMin
	for ctx.Err() == nil {
		began := time.Now()
		err := f.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.dialFailed(err)
		case time.Since(began) > lasting:
			pause = redialMin
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, redialMax)
	}
}

func (f *follower) dialFailed(err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.dialer.ReportRefused(f.leader)
	}
	f.log.Debug("cannot reach a leader", "error", err)
}

// connect dials and serves one connection; an error means that there was none.
func (f *follower) connect(ctx context.Context) error {
	c, err := f.dialer.DialFeed(ctx, f.leader)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	err = f.serve(c)
	if ctx.Err() == nil {
		f.log.Info("feed ended", "error", err)
	}
	return nil
}

func (f *follower) serve(c net.Conn) error {
	core := feed.NewFollower()
	f.mu.Lock()
	f.core = core
	for p, epoch := range f.wanted {
		f.addLocked(p, epoch)
	}
	f.mu.Unlock()
	ended := make(chan struct{})
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		defer c.Close() //nolint:errcheck // it ends the reader; the connection is over
		f.write(c, core, ended)
	}()
	err := f.read(c, core)
	f.mu.Lock()
	f.core = nil
	f.mu.Unlock()
	close(ended)
	_ = c.Close()
	writer.Wait()
	return err
}

// write sends what the core has to say until the connection ends.
func (f *follower) write(c net.Conn, core *feed.Follower, ended <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var frames []feed.Frame
	var buf []byte
	for {
		f.mu.Lock()
		frames = core.Pending(frames[:0], pendingMax, f.env.now())
		wakeAt := core.WakeAt()
		f.mu.Unlock()
		if len(frames) == 0 {
			timer.Reset(untilWake(wakeAt, f.env.now()))
			select {
			case <-ended:
				return
			case <-f.wake:
			case <-timer.C:
			}
			continue
		}
		buf = buf[:0]
		for _, fr := range frames {
			buf = feed.AppendFrame(buf, fr)
		}
		_ = c.SetWriteDeadline(time.Now().Add(f.silence))
		if _, err := c.Write(buf); err != nil {
			return // the reader sees the closed connection and reports it
		}
	}
}

// untilWake is how long to sleep until at; an hour when nothing is due.
func untilWake(at, now time.Time) time.Duration {
	if at.IsZero() {
		return time.Hour
	}
	return max(at.Sub(now), 0)
}

// read takes frames until the connection ends.
func (f *follower) read(c net.Conn, core *feed.Follower) error {
	in := &feedReader{br: bufio.NewReaderSize(c, feedBuffer), conn: c, silence: f.silence}
	var actions []feed.Action
	for {
		fr, err := in.frame()
		if err != nil {
			return err
		}
		f.mu.Lock()
		actions, err = core.Receive(actions[:0], fr, f.env.now())
		f.mu.Unlock()
		if err != nil {
			return err
		}
		for _, a := range actions {
			if err := f.act(in, core, a); err != nil {
				return err
			}
		}
		if in.br.Buffered() == 0 {
			f.signal() // all that has come is appended: one report for all of it
		}
	}
}

// act does what the core asks for. An error ends the connection.
func (f *follower) act(in *feedReader, core *feed.Follower, a feed.Action) error {
	p := f.followed(a.TP)
	switch a.Kind {
	case feed.ActionDrain:
		_, err := in.br.Discard(a.Size)
		return err
	case feed.ActionAppend:
		return f.append(in, core, p, a)
	}
	if p == nil {
		return nil
	}
	var local feed.Local
	var err error
	switch a.Kind {
	case feed.ActionMark:
		if local, err = p.marked(a.LeaderEpoch, a.HW, a.LogStart); err == nil {
			f.succeeded(p, a.Kind, func() { core.Started(a.TP, local.LogStart) })
		}
	case feed.ActionTruncate:
		local, err = p.truncateFed(a.LeaderEpoch, a.Epoch, a.End)
		f.env.metrics.truncations.Inc()
		f.log.Info("log cut to the common point with the leader", "topic", p.log.Topic(), "partition", a.TP.Partition, "end", int64(local.Written))
	case feed.ActionReset:
		local, err = p.resetFed(a.LeaderEpoch, a.LogStart)
		f.log.Warn("log does not touch the leader's and starts anew", "topic", p.log.Topic(), "partition", a.TP.Partition, "start", int64(a.LogStart))
	case feed.ActionRefused:
		f.log.Debug("not fed yet", "topic", p.log.Topic(), "partition", a.TP.Partition, "code", int(a.Code))
		return nil
	}
	f.acted(core, p, a, local, err)
	return nil
}

// followed finds the replica that an action is about.
func (f *follower) followed(tp fsm.TopicPartition) *Partition { return f.env.replicas.Get(tp) }

// tell changes the core under the lock.
func (f *follower) tell(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// acted tells the core how an action went.
func (f *follower) acted(core *feed.Follower, p *Partition, a feed.Action, local feed.Local, err error) {
	switch {
	case errors.Is(err, errStaleAttempt):
		return // the reconciler has told the core, or is about to
	case err != nil:
		f.failed(p, a.Kind, err)
		f.tell(func() { core.Retry(a.Ref, local, f.env.now()) })
	case a.Kind == feed.ActionTruncate, a.Kind == feed.ActionReset:
		f.tell(func() { core.Truncated(a.Ref, local) })
	case a.Kind == feed.ActionAppend:
		f.succeeded(p, a.Kind, func() { core.Appended(a.Ref, local) })
	}
}

// append takes the records behind a FEED. They are checked before the
// partition's lock is taken, and written with one call.
func (f *follower) append(in *feedReader, core *feed.Follower, p *Partition, a feed.Action) error {
	b := f.buffers.get(bufferFit(a.Size))
	defer f.buffers.put(b)
	payload := b.bytes[:a.Size]
	if err := in.full(payload); err != nil {
		return err
	}
	f.env.metrics.feedBytesIn.Add(float64(a.Size))
	if p == nil {
		return nil
	}
	before, err := p.local(a.LeaderEpoch)
	if err != nil {
		return nil // the reconciler has told the core, or is about to
	}
	good, broken := checkRun(payload, before.Written)
	if len(good) > 0 {
		local, err := p.appendFed(a.LeaderEpoch, good, a.HW, a.LogStart)
		f.acted(core, p, a, local, err)
		if err != nil {
			return nil
		}
	}
	if broken == nil {
		return nil
	}
	// Good or not, what came before is in the log now: the broken batch is the next.
	if local, err := p.local(a.LeaderEpoch); err == nil {
		f.failed(p, a.Kind, fmt.Errorf("the batch at offset %d arrived broken: %w", local.Written, broken))
		f.tell(func() { core.Bad(a.Ref, local.Written, local, f.env.now()) })
	}
	return nil
}

// checkRun checks shape, place and CRC of every batch, the first of which holds offset
// next, and returns those before the first that is broken, and how that one is. A leader
// whose file lacks its end sends half a batch: that is one partition's trouble, and not
// the connection's, since the frame says where it ends.
func checkRun(payload []byte, next batch.Offset) (good batch.Run, broken error) {
	rest := payload
	for len(rest) > 0 {
		b, after, err := batch.Next(rest)
		switch {
		case err != nil:
		case b.Base() > next || len(rest) < len(payload) && b.Base() != next:
			err = fmt.Errorf("the batch begins at offset %d, not %d", b.Base(), next)
		default:
			err = b.CheckCRC()
		}
		if err != nil {
			return payload[:len(payload)-len(rest)], err
		}
		rest, next = after, b.End()
	}
	return payload, nil
}

// feedReader reads frames and records off one connection and closes it after a
// silence: any byte is a sign of life.
type feedReader struct {
	br      *bufio.Reader
	conn    net.Conn
	silence time.Duration
	until   time.Time // the deadline that is set
	scratch []byte
}

func (r *feedReader) frame() (feed.Frame, error) {
	r.extend()
	return feed.ReadFrame(r.br, &r.scratch)
}

func (r *feedReader) full(p []byte) error {
	r.extend()
	_, err := io.ReadFull(r.br, p)
	return err
}

// extend moves the deadline, at most every quarter of the silence: it is a system call.
func (r *feedReader) extend() {
	if now := time.Now(); r.until.Sub(now) < r.silence*3/4 {
		r.until = now.Add(r.silence)
		_ = r.conn.SetReadDeadline(r.until)
	}
}
