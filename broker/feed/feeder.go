package feed

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// ErrProtocol is wrapped by errors that say that the peer broke the rules of the
// feed: the connection has to be closed.
var ErrProtocol = errors.New("feed: protocol violation")

// maxHandles bounds what one connection can make the leader remember.
const maxHandles = 1 << 20

// Leading is the state of a partition that this node leads.
type Leading struct {
	Epoch batch.Epoch
	Start batch.Offset // log start offset
	End   batch.Offset // log end offset
	HW    batch.Offset
}

// View is what the peer of one connection may see of the leader's node.
type View interface {
	// Leading returns the state of a partition, or why this peer cannot be fed:
	// CodeNotLeader, CodeUnknown (also when the peer is not one of its replicas)
	// or CodeStorage.
	Leading(tp fsm.TopicPartition) (Leading, Code)
	// EpochEnd returns the largest epoch of the log that is at most e, and its end;
	// NoEpoch and the log start when there is none.
	EpochEnd(tp fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset)
}

// Window bounds what is sent and not yet written by the follower.
type Window struct {
	ConnBytes      int           // over all partitions of the connection
	PartitionBytes int           // of one partition
	FeedBytes      int           // of one Feed, unless its first batch alone is larger
	MarkDelay      time.Duration // how long a moved watermark waits for others
}

// DefaultWindow is enough for a gigabyte a second at ten milliseconds.
func DefaultWindow() Window {
	return Window{ConnBytes: 16 << 20, PartitionBytes: 4 << 20, FeedBytes: 1 << 20, MarkDelay: 5 * time.Millisecond}
}

// VerdictKind says what a Verdict tells the partition.
type VerdictKind uint8

// The kinds of verdicts, and what the shell calls on the partition's isr.Leader.
const (
	VerdictOpened     VerdictKind = iota + 1 // Follow, then Progressed with Position
	VerdictProgressed                        // Progressed with Position
	VerdictGone                              // Gone
	VerdictBehind                            // Behind with Offset
	VerdictBad                               // none: reread the batch at Offset and check it
)

// Verdict is what a received frame means for one partition. It holds only
// while the partition is led in Epoch; the shell drops it otherwise.
type Verdict struct {
	Kind     VerdictKind
	TP       fsm.TopicPartition
	Epoch    batch.Epoch
	Position isr.Position // of VerdictOpened and VerdictProgressed
	Offset   batch.Offset // of VerdictBehind and VerdictBad
}

// Send asks the shell to read records and to send them as one Feed.
type Send struct {
	Ref
	TP       fsm.TopicPartition
	Epoch    batch.Epoch
	From     batch.Offset
	End      batch.Offset // the log end when it was decided: read no further
	MaxBytes int          // whole batches up to this size; the first one whatever its size
	lead     Leading      // as it was decided; its watermarks go with the records
}

// OutKind says what an Out is.
type OutKind uint8

// The kinds of Out.
const (
	OutNone  OutKind = iota // nothing until the next event, or until WakeAt
	OutFrame                // Frame is to be sent
	OutSend                 // Send is to be read and sent
)

// Out is the next thing to do for the leader's writer.
type Out struct {
	Kind   OutKind
	Frame  Frame     // of OutFrame; its items are valid until the next call of Next
	Send   Send      // of OutSend
	Gone   *Verdict  // set when Frame ends an attempt: apply it to the partition
	WakeAt time.Time // of OutNone: when Next has something again by itself
}

// Feeder is the leader's side of one connection: all attempts of one follower
// node, led by this one.
type Feeder struct {
	peer        isr.Member
	w           Window
	closed      bool
	streams     map[Handle]*stream             // every handle until it is unfollowed
	open        map[fsm.TopicPartition]*stream // the one open attempt of a partition
	lastHandle  Handle
	lastAttempt Attempt
	inFlight    int // bytes sent in open attempts and not yet written

	replies queue // streams with a reply
	ready   queue // streams that may have records to send
	marks   queue // streams whose watermarks are to be told
	urgent  int   // of which answer a Follow
	markAt  time.Time
	items   []MarkItem
	pings   pinger
}

// NewFeeder begins a connection from a follower node.
func NewFeeder(peer isr.Member, w Window) *Feeder {
	return &Feeder{
		peer: peer, w: w,
		streams: make(map[Handle]*stream), open: make(map[fsm.TopicPartition]*stream),
	}
}

// Peer is the follower node.
func (d *Feeder) Peer() isr.Member { return d.peer }

// Heard is when the last answered Ping was sent; zero before the first Pong.
func (d *Feeder) Heard() time.Time { return d.pings.heard }

// Ping queues a Ping.
func (d *Feeder) Ping(now time.Time) { d.pings.ping(now) }

// InFlight is the number of bytes sent and not yet written by the follower.
func (d *Feeder) InFlight() int { return d.inFlight }

// Receive takes one frame of the follower and appends what it means for
// partitions to dst. After an error the connection has to be closed.
func (d *Feeder) Receive(dst []Verdict, f Frame, v View) ([]Verdict, error) {
	if d.closed {
		return dst, nil
	}
	switch f := f.(type) {
	case Follow:
		return d.follow(dst, f, v)
	case Progress:
		return d.progress(dst, f)
	case Unfollow:
		return d.unfollow(dst, f)
	case Bad:
		return d.bad(dst, f)
	case Ping:
		d.pings.asked(f.Number)
		return dst, nil
	case Pong:
		return dst, d.pings.answered(f.Number)
	default:
		return dst, fmt.Errorf("%w: frame of kind %d from a follower", ErrProtocol, f.Kind())
	}
}

// Dirty says that a partition's log grew.
func (d *Feeder) Dirty(tp fsm.TopicPartition) {
	if s := d.open[tp]; s != nil {
		d.wake(s)
	}
}

// DirtyMark says that a partition's high watermark or log start moved.
func (d *Feeder) DirtyMark(tp fsm.TopicPartition, now time.Time) {
	if s := d.open[tp]; s != nil {
		d.mark(s, now)
	}
}

// CloseEpoch ends a partition's attempt of a leader epoch up to the given one.
// The leader calls it on every connection before it leaves the epoch, once View
// already refuses the partition.
func (d *Feeder) CloseEpoch(tp fsm.TopicPartition, e batch.Epoch) {
	if s := d.open[tp]; s != nil && s.epoch <= e {
		d.refuse(s, Refused{Code: CodeNotLeader})
	}
}

// Close ends all attempts: the connection is over or a newer one of the same
// node replaces it. Whatever is received afterwards counts for nothing.
func (d *Feeder) Close(dst []Verdict) []Verdict {
	streams := slices.SortedFunc(maps.Values(d.open), func(a, b *stream) int { return cmp.Compare(a.ref.Handle, b.ref.Handle) })
	for _, s := range streams {
		dst = append(dst, s.gone())
		d.shut(s)
	}
	d.closed = true
	return dst
}
