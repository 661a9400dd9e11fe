package feed_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// ends is a leader's node with many partitions of which only the ends matter.
type ends struct{ end []batch.Offset }

func (e ends) tp(i int) fsm.TopicPartition {
	var tp fsm.TopicPartition
	binary.BigEndian.PutUint64(tp.Topic[:], 1)
	tp.Partition = int32(i)
	return tp
}

// Leading implements feed.View.
func (e ends) Leading(tp fsm.TopicPartition) (feed.Leading, feed.Code) {
	end := e.end[tp.Partition]
	return feed.Leading{Epoch: 3, End: end, HW: end}, feed.CodeNone
}

// EpochEnd implements feed.View.
func (e ends) EpochEnd(tp fsm.TopicPartition, _ batch.Epoch) (batch.Epoch, batch.Offset) {
	return 3, e.end[tp.Partition]
}

// followed connects a follower of n empty partitions.
func followed(tb testing.TB, n int) (*feed.Feeder, *feed.Follower, ends) {
	e := ends{make([]batch.Offset, n)}
	d := feed.NewFeeder(isr.Member{ID: 2, Epoch: 2}, feed.DefaultWindow())
	w := feed.NewFollower()
	for i := range n {
		w.Add(e.tp(i), 3, feed.Local{LastEpoch: batch.NoEpoch})
	}
	now := time.Unix(1_000_000, 0)
	settle(tb, d, w, e, now)
	return d, w, e
}

// settle carries frames both ways until both sides are quiet, and returns how
// many there were.
func settle(tb testing.TB, d *feed.Feeder, w *feed.Follower, e ends, now time.Time) int {
	frames := 0
	for busy := true; busy; {
		busy = false
		for _, f := range w.Pending(nil, 1<<20, now) {
			busy = true
			frames++
			if _, err := d.Receive(nil, f, e); err != nil {
				tb.Fatal(err)
			}
		}
		for {
			out := d.Next(e, now)
			f := out.Frame
			if out.Kind == feed.OutNone {
				break
			}
			if out.Kind == feed.OutSend {
				var ok bool
				if f, ok = d.Sent(out.Send, out.Send.End, 1000); !ok {
					tb.Fatalf("not sent: %+v", out)
				}
			}
			busy = true
			frames++
			as, err := w.Receive(nil, f, now)
			if err != nil {
				tb.Fatal(err)
			}
			for _, a := range as {
				if a.Kind == feed.ActionAppend {
					end := e.end[a.TP.Partition]
					w.Appended(a.Ref, feed.Local{Written: end, Flushed: end, LastEpoch: 3})
				}
			}
		}
	}
	return frames
}

// TestIdlePartitionsSendNothing: of ten thousand partitions only the one that
// has records costs frames, and one that only moved its watermark costs none of its own.
func TestIdlePartitionsSendNothing(t *testing.T) {
	d, w, e := followed(t, 10_000)
	now := time.Unix(1_000_010, 0)
	if n := settle(t, d, w, e, now); n != 0 {
		t.Errorf("%d frames at rest, want 0", n)
	}
	e.end[77] = 5
	d.Dirty(e.tp(77))
	if n := settle(t, d, w, e, now); n != 2 {
		t.Errorf("%d frames for one append, want FEED and PROGRESS", n)
	}
	for i := range e.end {
		d.DirtyMark(e.tp(i), now)
	}
	if n := settle(t, d, w, e, now.Add(time.Second)); n != 0 {
		t.Errorf("%d frames for watermarks that did not move, want 0", n)
	}
}

// BenchmarkFeed is one append on the leader, its FEED, and the PROGRESS for it,
// among ten thousand partitions.
func BenchmarkFeed(b *testing.B) {
	d, w, e := followed(b, 10_000)
	now := time.Unix(1_000_010, 0)
	var frames []feed.Frame
	var verdicts []feed.Verdict
	var actions []feed.Action
	var buf []byte
	b.ReportAllocs()
	for i := range b.N {
		p := i % len(e.end)
		e.end[p]++
		d.Dirty(e.tp(p))
		out := d.Next(e, now)
		f, ok := d.Sent(out.Send, out.Send.End, 1000)
		if !ok {
			b.Fatalf("not sent: %+v", out)
		}
		buf = feed.AppendFrame(buf[:0], f)
		fr, _, _ := feed.DecodeFrame(buf)
		actions, _ = w.Receive(actions[:0], fr, now)
		w.Appended(actions[0].Ref, feed.Local{Written: e.end[p], LastEpoch: 3})
		frames = w.Pending(frames[:0], 64, now)
		buf = feed.AppendFrame(buf[:0], frames[0])
		fr, _, _ = feed.DecodeFrame(buf)
		verdicts, _ = d.Receive(verdicts[:0], fr, e)
	}
	if len(verdicts) != 1 {
		b.Fatalf("%d verdicts", len(verdicts))
	}
}

// BenchmarkFollowMany is a follower that connects with ten thousand partitions.
func BenchmarkFollowMany(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		followed(b, 10_000)
	}
}
