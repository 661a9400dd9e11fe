package isr

import (
	"fmt"

	"github.com/weirmq/weir/wire/batch"
)

// Follower is a follower's side of one partition in one leader epoch: what it
// may show of its log.
type Follower struct {
	epoch    batch.Epoch
	end      batch.Offset
	hw       batch.Offset
	start    batch.Offset
	leaderHW batch.Offset // as the leader of this epoch last told
	told     bool         // it has told
}

// NewFollower begins to follow with a log of the given span. Its high watermark
// is a hint that survived from before; it is never a reason to truncate.
func NewFollower(epoch batch.Epoch, sp Span) *Follower {
	return &Follower{epoch: epoch, end: sp.End, hw: min(sp.HW, sp.End), start: sp.Start}
}

// Mark takes the leader's high watermark and log start offset together with the
// own log end, and returns the own high watermark: the leader's, bounded by the
// own end. It does not fall when a new leader does not know of it yet.
func (f *Follower) Mark(hw, logStart, end batch.Offset) batch.Offset {
	if end < f.end {
		panic(fmt.Sprintf("BUG: log end went back from %d to %d without a truncation", f.end, end))
	}
	f.end, f.told = end, true
	f.leaderHW = max(f.leaderHW, hw)
	f.hw = max(f.hw, min(f.leaderHW, f.end))
	f.start = max(f.start, min(logStart, f.hw))
	return f.hw
}

// Truncated says that the log now starts and ends at other places, on the word
// of the leader of this epoch. It tells whether the cut went below the high
// watermark, which only an unclean election explains.
func (f *Follower) Truncated(start, end batch.Offset) (belowHW bool) {
	belowHW = end < f.hw
	f.start, f.end = start, end
	f.hw = min(max(f.hw, start), end)
	return belowHW
}

// HW is the end of what may be shown to a reader, once Told.
func (f *Follower) HW() batch.Offset { return f.hw }

// Told tells whether the leader of this epoch has accepted the log and told its
// high watermark. Before, the own one is of an earlier epoch: what it covers may
// be gone from all other logs if this epoch's leader was elected at the risk of loss.
func (f *Follower) Told() bool { return f.told }

// Behind is how far the log ends below the high watermark that the leader told.
func (f *Follower) Behind() batch.Offset { return max(0, f.leaderHW-f.end) }

// LogStart is the log start offset that the log has to be moved to.
func (f *Follower) LogStart() batch.Offset { return f.start }

// Epoch is the leader epoch that is followed.
func (f *Follower) Epoch() batch.Epoch { return f.epoch }
