package feed

import (
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// Handle names one partition on one connection. The follower chooses it; it only
// rises and is never given to another partition.
type Handle uint32

// Attempt names one try to follow one partition in one leader epoch. The follower
// chooses it; over all handles of a connection it only rises and is never reused.
type Attempt uint32

// Ref is carried by every frame that belongs to an attempt.
type Ref struct {
	Handle  Handle
	Attempt Attempt
}

// Kind is the first byte of an encoded frame.
type Kind uint8

// The kinds of frames.
const (
	KindFollow Kind = iota + 1
	KindFeed
	KindProgress
	KindMark
	KindDiverged
	KindRefused
	KindBad
	KindUnfollow
	KindPing
	KindPong
)

// Code tells why an attempt was refused or ended by the leader.
type Code uint8

// The codes of Refused. OutOfRange is only ever answered at an equal leader epoch.
const (
	CodeNone       Code = iota
	CodeOldEpoch        // the follower asked in an older leader epoch than the leader's
	CodeNewEpoch        // the follower asked in a newer leader epoch than the leader knows yet
	CodeNotLeader       // this node does not lead the partition, or stopped leading it in this epoch
	CodeUnknown         // no such partition here, or the follower is not one of its replicas
	CodeOutOfRange      // the follower's log does not touch the leader's
	CodeStorage         // the leader cannot read its log
)

// Frame is one message of the feed.
type Frame interface {
	// Kind is the frame's first byte.
	Kind() Kind
}

// Follow asks the leader to feed a partition from Written on.
type Follow struct {
	Ref
	TP          fsm.TopicPartition
	LeaderEpoch batch.Epoch
	Local
}

// Local is the state of a follower's log.
type Local struct {
	Written   batch.Offset // log end, exclusive
	Flushed   batch.Offset // end of what is on disk, exclusive
	LastEpoch batch.Epoch  // leader epoch of the last batch; NoEpoch when the log is empty
	LogStart  batch.Offset
}

// Feed announces Size bytes of whole record batches, which follow the frame.
type Feed struct {
	Ref
	HW       batch.Offset
	LogStart batch.Offset
	Size     int
}

// Progress reports how far followers' logs reach.
type Progress struct {
	Items []ProgressItem
}

// ProgressItem is the report for one attempt.
type ProgressItem struct {
	Ref
	Written  batch.Offset
	Flushed  batch.Offset
	LogStart batch.Offset
}

// Mark tells watermarks that moved without records.
type Mark struct {
	Items []MarkItem
}

// MarkItem is the watermarks for one attempt.
type MarkItem struct {
	Ref
	HW       batch.Offset
	LogStart batch.Offset
}

// Diverged ends an attempt: the largest epoch of the leader's log that is not
// above the follower's last one, and where it ends there.
type Diverged struct {
	Ref
	Epoch batch.Epoch
	End   batch.Offset
}

// Refused ends an attempt, or declines it, and tells the extent of the leader's log.
type Refused struct {
	Ref
	Code     Code
	LogStart batch.Offset
	End      batch.Offset
}

// Bad ends an attempt: the batch at Offset arrived with a wrong CRC.
type Bad struct {
	Ref
	Offset batch.Offset
}

// Unfollow ends an attempt.
type Unfollow struct {
	Ref
}

// Ping asks for a Pong with the same number.
type Ping struct {
	Number uint64
}

// Pong answers a Ping, and with it every one that was sent before.
type Pong struct {
	Number uint64
}

// Kind is KindFollow.
func (Follow) Kind() Kind { return KindFollow }

// Kind is KindFeed.
func (Feed) Kind() Kind { return KindFeed }

// Kind is KindProgress.
func (Progress) Kind() Kind { return KindProgress }

// Kind is KindMark.
func (Mark) Kind() Kind { return KindMark }

// Kind is KindDiverged.
func (Diverged) Kind() Kind { return KindDiverged }

// Kind is KindRefused.
func (Refused) Kind() Kind { return KindRefused }

// Kind is KindBad.
func (Bad) Kind() Kind { return KindBad }

// Kind is KindUnfollow.
func (Unfollow) Kind() Kind { return KindUnfollow }

// Kind is KindPing.
func (Ping) Kind() Kind { return KindPing }

// Kind is KindPong.
func (Pong) Kind() Kind { return KindPong }
