package broker

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/broker/send"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

const (
	// inlineMax is up to which size records are copied into the write buffer:
	// below it one write for many partitions beats a sendfile for each.
	inlineMax = 16 << 10
	// gatherMax is when the write buffer is sent although more may be ready.
	gatherMax = 64 << 10
)

// What has changed in a partition that a feeder was woken for.
type feedNews uint8

const (
	newsRecords feedNews = 1 << iota // the log grew
	newsMarks                        // the high watermark or the log start moved
)

// feeder is the leader's side of the feed to one follower node: one connection
// for all partitions that the node follows here. The goroutine that runs serve
// reads, another one writes.
//
// mu guards the core and orders its verdicts; it comes before the locks of
// partitions. inbox is a leaf, so that a partition can be woken from anywhere.
type feeder struct {
	peer    isr.Member
	conn    net.Conn
	env     *environment
	ping    time.Duration // between two questions whether the follower lives
	silence time.Duration // a follower that says nothing for so long is cut off
	log     hclog.Logger
	heard   atomic.Int64  // boot time in ns at which the last answered question was sent
	wakeUp  chan struct{} // capacity 1: inbox or core have something
	ended   chan struct{} // closed when the connection is over

	mu       sync.Mutex
	core     *feed.Feeder
	verdicts []feed.Verdict
	broken   []feed.Verdict // batches to be checked once mu is free

	inbox sync.Mutex
	news  map[*Partition]feedNews
}

func newFeeder(peer isr.Member, c net.Conn, env *environment, ping, silence time.Duration, log hclog.Logger) *feeder {
	return &feeder{
		peer: peer, conn: c, env: env, ping: ping, silence: silence, log: log,
		wakeUp: make(chan struct{}, 1), ended: make(chan struct{}),
		core: feed.NewFeeder(peer, feed.DefaultWindow()), news: make(map[*Partition]feedNews),
	}
}

// wake tells the feeder what changed in p. It takes no lock but the inbox's.
func (f *feeder) wake(p *Partition, what feedNews) {
	f.inbox.Lock()
	f.news[p] |= what
	f.inbox.Unlock()
	f.signal()
}

func (f *feeder) signal() { wakeUp(f.wakeUp) }

// closeEpoch ends the attempts of an epoch that p has left.
func (f *feeder) closeEpoch(p *Partition, epoch batch.Epoch) {
	f.mu.Lock()
	f.core.CloseEpoch(p.tp, epoch)
	f.mu.Unlock()
	f.signal()
}

// serve runs the connection until it ends.
func (f *feeder) serve() error {
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		defer f.conn.Close() //nolint:errcheck // it ends the reader; the connection is over
		if err := f.write(); err != nil {
			f.log.Debug("cannot send to a follower", "error", err)
		}
	}()
	err := f.read()
	f.shut()
	close(f.ended)
	writer.Wait()
	return err
}

// shut makes everything that still arrives on this connection count for nothing.
func (f *feeder) shut() {
	f.mu.Lock()
	f.verdicts = f.core.Close(f.verdicts[:0])
	f.applyLocked(f.verdicts)
	f.mu.Unlock()
	_ = f.conn.Close()
}

func (f *feeder) read() error {
	in := &feedReader{br: bufio.NewReaderSize(f.conn, feedBuffer), conn: f.conn, silence: f.silence}
	view := peerView{f.env, f.peer.ID}
	for {
		fr, err := in.frame()
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.verdicts, err = f.core.Receive(f.verdicts[:0], fr, view)
		f.applyLocked(f.verdicts)
		if at := f.core.Heard(); !at.IsZero() {
			f.heard.Store(at.UnixNano())
		}
		broken := f.broken
		f.broken = nil
		f.mu.Unlock()
		if err != nil {
			return err
		}
		f.signal()
		for _, v := range broken {
			if p := f.env.replicas.Get(v.TP); p != nil {
				p.suspect(v.Epoch, v.Offset)
			}
		}
	}
}

// applyLocked tells partitions what was received. The lock keeps the order in
// which the core decided.
func (f *feeder) applyLocked(vs []feed.Verdict) {
	for _, v := range vs {
		p := f.env.replicas.Get(v.TP)
		if p == nil {
			continue
		}
		switch v.Kind {
		case feed.VerdictOpened:
			if !p.opened(f, f.peer, v.Epoch, v.Position) {
				f.core.CloseEpoch(v.TP, v.Epoch)
			}
		case feed.VerdictProgressed:
			p.progressed(f.peer, v.Epoch, v.Position)
		case feed.VerdictGone:
			p.gone(f, f.peer, v.Epoch)
		case feed.VerdictBehind:
			p.behind(f.peer, v.Epoch, v.Offset)
		case feed.VerdictBad:
			f.log.Error("a follower got a batch with a wrong checksum", "topic", p.log.Topic(), "partition", v.TP.Partition, "offset", int64(v.Offset))
			f.broken = append(f.broken, v)
		}
	}
}

// collectLocked moves the news of partitions into the core.
func (f *feeder) collectLocked(now time.Time) {
	f.inbox.Lock()
	defer f.inbox.Unlock()
	for p, what := range f.news {
		if what&newsRecords != 0 {
			f.core.Dirty(p.tp)
		}
		if what&newsMarks != 0 {
			f.core.DirtyMark(p.tp, now)
		}
	}
	clear(f.news)
}

// write sends what the core decides until the connection ends.
func (f *feeder) write() error {
	timer := time.NewTimer(f.ping)
	defer timer.Stop()
	out := feedWriter{f: f}
	view := peerView{f.env, f.peer.ID}
	nextPing := f.env.now()
	for {
		now := f.env.now()
		f.mu.Lock()
		if !now.Before(nextPing) {
			f.core.Ping(f.env.bootTime())
			nextPing = now.Add(f.ping)
		}
		f.collectLocked(now)
		next := f.core.Next(view, now)
		if next.Gone != nil {
			f.applyLocked([]feed.Verdict{*next.Gone})
		}
		f.mu.Unlock()
		if next.Kind != feed.OutNone {
			if err := out.put(next); err != nil {
				return err
			}
			continue
		}
		if err := out.flush(); err != nil {
			return err
		}
		wakeAt := nextPing
		if !next.WakeAt.IsZero() && next.WakeAt.Before(wakeAt) {
			wakeAt = next.WakeAt
		}
		timer.Reset(max(wakeAt.Sub(f.env.now()), 0))
		select {
		case <-f.ended:
			return nil
		case <-f.wakeUp:
		case <-timer.C:
		}
	}
}

// feedWriter gathers frames and small records into one write, and sends large
// records from the file.
type feedWriter struct {
	f   *feeder
	buf []byte
}

func (w *feedWriter) put(o feed.Out) error {
	if o.Kind == feed.OutFrame {
		w.buf = feed.AppendFrame(w.buf, o.Frame)
		if len(w.buf) >= gatherMax {
			return w.flush()
		}
		return nil
	}
	return w.records(o.Send)
}

// records reads what a Send asks for and sends it as one FEED.
func (w *feedWriter) records(s feed.Send) error {
	f := w.f
	p := f.env.replicas.Get(s.TP)
	if p == nil {
		f.failedSend(s, errStaleAttempt)
		return nil
	}
	r, err := p.readFeed(s.Epoch, s.From, s.End, s.MaxBytes)
	if err != nil {
		f.failedSend(s, err)
		return nil
	}
	if r.Len() > 0 && r.First() > s.From { // it may begin before: the log start can lie inside a batch
		r.Release()
		f.failedSend(s, fmt.Errorf("records from %d were asked for and the log gave them from %d", s.From, r.First()))
		return nil
	}
	f.mu.Lock()
	head, ok := f.core.Sent(s, r.End(), r.Len())
	f.mu.Unlock()
	if !ok {
		r.Release()
		return nil
	}
	f.env.metrics.feedBytesOut.Add(float64(r.Len()))
	w.buf = feed.AppendFrame(w.buf, head)
	if r.Len() <= inlineMax {
		return w.inline(r)
	}
	err = send.Response(f.conn, w.buf, []send.Hole{{At: len(w.buf), Size: r.Len()}}, []storage.Range{r}, f.silence)
	w.buf = w.buf[:0]
	return err
}

// inline copies small records behind their frame.
func (w *feedWriter) inline(r storage.Range) error {
	defer r.Release()
	at, n := len(w.buf), r.Len()
	w.buf = append(w.buf, make([]byte, n)...)
	if got, err := r.ReadAt(w.buf[at:], 0); got < n {
		return fmt.Errorf("read %d bytes of records: %w", n, err)
	}
	if len(w.buf) >= gatherMax {
		return w.flush()
	}
	return nil
}

func (w *feedWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := send.Response(w.f.conn, w.buf, nil, nil, w.f.silence)
	w.buf = w.buf[:0]
	return err
}

// failedSend ends the attempt whose records could not be read.
func (f *feeder) failedSend(s feed.Send, err error) {
	code := feed.CodeStorage
	switch {
	case errors.Is(err, errStaleAttempt):
		code = feed.CodeNotLeader
	case errors.Is(err, storage.ErrOffsetOutOfRange):
		code = feed.CodeOutOfRange
	default:
		f.log.Error("cannot read records for a follower", "partition", s.TP.Partition, "offset", int64(s.From), "error", err)
	}
	f.mu.Lock()
	f.applyLocked(f.core.Failed(nil, s, code))
	f.mu.Unlock()
}

// peerView is what one follower node may see of this node's partitions.
type peerView struct {
	env  *environment
	peer fsm.BrokerID
}

// Leading implements feed.View.
func (v peerView) Leading(tp fsm.TopicPartition) (feed.Leading, feed.Code) {
	p := v.env.replicas.Get(tp)
	if p == nil {
		return feed.Leading{}, feed.CodeUnknown
	}
	return p.leading(v.peer)
}

// EpochEnd implements feed.View.
func (v peerView) EpochEnd(tp fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset) {
	p := v.env.replicas.Get(tp)
	if p == nil {
		return batch.NoEpoch, 0
	}
	return p.log.EpochEnd(e)
}
