package check

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

const (
	bucketsMax  = 1200
	bucketWidth = 100 * time.Millisecond // at first; it doubles when there are too many
	// latencyBits is how many binary digits of a latency, in microseconds, are kept.
	latencyBits  = 4
	latencySlots = (40 - latencyBits + 2) << (latencyBits - 1)
)

// Series is what happened over time.
type Series struct {
	Width   time.Duration // of a bucket
	Buckets []Bucket
	unread  int64 // acknowledged and not yet read
}

// Bucket is one span of time.
type Bucket struct {
	Acked   int64 // records
	Unknown int64 // records of unknown outcome
	Failed  int64
	Read    int64
	Unseen  int64 // records acknowledged and not yet read, at the end
	seen    bool  // Unseen is set
	// Latency is that of acknowledged operations.
	Latency Latencies
	Lag     time.Duration // the greatest of a reader
	// Silence is the longest time without an acknowledgement of any key that had
	// passed at the end of the bucket, or when it ended.
	Silence time.Duration
	// AllSilence is the same of all keys together.
	AllSilence time.Duration
}

// Latencies is a histogram with steps of about six percent.
type Latencies struct {
	Max   time.Duration
	Count int64
	slots []uint32
}

func newSeries() Series { return Series{Width: bucketWidth} }

// bucket is the bucket of a time.
func (s *Series) bucket(at int64) *Bucket {
	at = max(at, 0)
	for at/int64(s.Width) >= bucketsMax {
		s.halve()
	}
	i := int(at / int64(s.Width))
	for len(s.Buckets) <= i {
		s.Buckets = append(s.Buckets, Bucket{})
	}
	return &s.Buckets[i]
}

// halve makes the buckets twice as wide.
func (s *Series) halve() {
	s.Width *= 2
	n := (len(s.Buckets) + 1) / 2
	for i := range n {
		b := s.Buckets[2*i]
		if 2*i+1 < len(s.Buckets) {
			b.merge(&s.Buckets[2*i+1])
		}
		s.Buckets[i] = b
	}
	s.Buckets = s.Buckets[:n]
}

func (b *Bucket) merge(o *Bucket) {
	b.Acked += o.Acked
	b.Unknown += o.Unknown
	b.Failed += o.Failed
	b.Read += o.Read
	if o.seen {
		b.Unseen, b.seen = o.Unseen, true
	}
	b.Latency.merge(&o.Latency)
	b.Lag = max(b.Lag, o.Lag)
	b.Silence = max(b.Silence, o.Silence)
	b.AllSilence = max(b.AllSilence, o.AllSilence)
}

// op counts what an operation sent and read.
func (s *Series) op(op *history.Op) {
	b := s.bucket(op.Complete)
	n := int64(len(op.Sends))
	switch op.Outcome {
	case history.OK:
		b.Acked += n
		if n > 0 {
			b.Latency.add(time.Duration(op.Complete - op.Invoke))
		}
	case history.Info:
		b.Unknown += n
	case history.Fail:
		b.Failed += n
	}
	b.Read += int64(len(op.Polls))
}

// unseen counts records that were acknowledged and not yet read.
func (s *Series) unseen(at, by int64) {
	s.unread += by
	b := s.bucket(at)
	b.Unseen, b.seen = s.unread, true
}

func (s *Series) lag(at, lag int64) {
	b := s.bucket(at)
	b.Lag = max(b.Lag, time.Duration(lag))
}

// silent spreads a time without acknowledgement over its buckets.
func (s *Series) silent(g quiet) {
	s.spread(g, func(b *Bucket, d time.Duration) {
		if g.key != allKeys {
			b.Silence = max(b.Silence, d)
		} else {
			b.AllSilence = max(b.AllSilence, d)
		}
	})
}

func (s *Series) spread(g quiet, to func(*Bucket, time.Duration)) {
	s.bucket(g.end) // before the width is used
	for i := max(g.start, 0) / int64(s.Width); i <= g.end/int64(s.Width); i++ {
		until := min(g.end, (i+1)*int64(s.Width))
		to(&s.Buckets[i], time.Duration(until-g.start))
	}
}

// finish carries Unseen over buckets without a change.
func (s *Series) finish() {
	last := int64(0)
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.seen {
			last = b.Unseen
		} else {
			b.Unseen = last
		}
	}
}

// slotOfLatency is the histogram's slot: the position of the highest digit and the
// digits after it.
func slotOfLatency(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	shift := max(bits.Len64(us)-latencyBits, 0)
	return min(shift<<(latencyBits-1)+int(us>>shift), latencySlots-1)
}

// latencyOfSlot is the middle of a slot.
func latencyOfSlot(i int) time.Duration {
	shift := max(i>>(latencyBits-1)-1, 0)
	us := uint64(i-shift<<(latencyBits-1)) << shift
	return time.Duration(us+uint64(1)<<shift/2) * time.Microsecond
}

func (l *Latencies) add(d time.Duration) {
	if l.slots == nil {
		l.slots = make([]uint32, latencySlots)
	}
	l.slots[slotOfLatency(d)]++
	l.Count++
	l.Max = max(l.Max, d)
}

func (l *Latencies) merge(o *Latencies) {
	if o.slots == nil {
		return
	}
	if l.slots == nil {
		*l = *o
		return
	}
	for i, n := range o.slots {
		l.slots[i] += n
	}
	l.Count += o.Count
	l.Max = max(l.Max, o.Max)
}

// Quantile is the latency that a share q of the operations kept below, within six
// percent.
func (l *Latencies) Quantile(q float64) time.Duration {
	left := int64(q * float64(l.Count))
	for i, n := range l.slots {
		if left -= int64(n); left < 0 {
			return min(latencyOfSlot(i), l.Max)
		}
	}
	return l.Max
}

// Latency is that of the whole run.
func (s *Series) Latency() Latencies {
	var out Latencies
	for i := range s.Buckets {
		if b := &s.Buckets[i].Latency; b.slots != nil {
			if out.slots == nil {
				out.slots = make([]uint32, latencySlots)
			}
			out.merge(b)
		}
	}
	return out
}

// Coarse is the series with at most so many buckets.
func (s *Series) Coarse(most int) Series {
	out := Series{Width: s.Width, Buckets: slices.Clone(s.Buckets)}
	for i := range out.Buckets {
		out.Buckets[i].Latency.slots = slices.Clone(out.Buckets[i].Latency.slots)
		out.Buckets[i].seen = true
	}
	for len(out.Buckets) > most {
		out.halve()
	}
	return out
}
