package wire

import (
	"math"

	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/codec"
)

// KeyFetch is the API that reads record batches.
//
// Version 5 adds the log start offset, 7 sessions, 9 the current leader epoch,
// 10 zstd, 11 the rack, 12 is flexible and checks the last fetched epoch, 13 has
// topic ids in place of names, 15 moves the replica id into a tagged field, 16
// adds leader hints to the response, 17 the directory id, 18 the follower's high
// watermark.
const KeyFetch Key = 1

// FetchRequest asks for record batches from given offsets on. With a session it
// holds only what has changed since the request before.
type FetchRequest struct {
	ClusterID           *string           // from 12
	ReplicaID           int32             // before 15; Replica gives either
	ReplicaState        FetchReplicaState // from 15
	MaxWaitMs           int32
	MinBytes            int32
	MaxBytes            int32
	IsolationLevel      int8 // 0 read uncommitted, 1 read committed
	SessionID           int32
	SessionEpoch        int32
	Topics              []FetchTopic
	ForgottenTopicsData []ForgottenTopic
	RackID              string // from 11
}

// FetchReplicaState tells which follower fetches, if any.
type FetchReplicaState struct {
	ReplicaID    int32 // -1 for a consumer
	ReplicaEpoch int64
}

// FetchTopic is one topic of a FetchRequest.
type FetchTopic struct {
	Topic      string   // before 13
	TopicID    [16]byte // from 13
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchTopic.
type FetchPartition struct {
	Partition          int32
	CurrentLeaderEpoch batch.Epoch // from 9, -1 when the client knows none
	FetchOffset        batch.Offset
	LogStartOffset     batch.Offset // from 5, -1 for consumers
	HighWatermark      batch.Offset // from 18, the greatest int64 for consumers
	LastFetchedEpoch   batch.Epoch  // from 12, -1 when there is none
	PartitionMaxBytes  int32
	ReplicaDirectoryID [16]byte // from 17
}

// ForgottenTopic names partitions to take out of a session.
type ForgottenTopic struct {
	Topic      string   // before 13
	TopicID    [16]byte // from 13
	Partitions []int32
}

// FetchResponse answers a FetchRequest.
type FetchResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code  // from 7
	SessionID      int32 // from 7, 0 for no session
	Responses      []FetchTopicResponse
	NodeEndpoints  []NodeEndpoint // from 16: the nodes that current leaders name
}

// FetchTopicResponse is one topic of a FetchResponse.
type FetchTopicResponse struct {
	Topic      string   // before 13
	TopicID    [16]byte // from 13
	Partitions []FetchPartitionResponse
}

// FetchPartitionResponse is one partition of a FetchTopicResponse.
type FetchPartitionResponse struct {
	PartitionIndex       int32
	ErrorCode            Code
	HighWatermark        batch.Offset
	LastStableOffset     batch.Offset
	LogStartOffset       batch.Offset         // from 5
	DivergingEpoch       *EpochEndOffset      // from 12, nil when the logs agree
	CurrentLeader        *LeaderIDAndEpoch    // from 12, nil when there is nothing to say
	SnapshotID           *SnapshotID          // from 12, nil unless the fetched offset is in a snapshot
	AbortedTransactions  []AbortedTransaction // nil, for null, when reading uncommitted
	PreferredReadReplica int32                // from 11, -1 for none
	// Records are whole batches back to back. They are written when RecordsSize is
	// 0, and nil is written as zero bytes, never as null.
	Records []byte
	// RecordsSize, when not 0, makes the encoder leave a Hole of that many bytes.
	// Decoding leaves it 0.
	RecordsSize int
}

// EpochEndOffset is the end of the largest epoch that two logs have in common.
type EpochEndOffset struct {
	Epoch     batch.Epoch
	EndOffset batch.Offset
}

// SnapshotID names a snapshot by its end.
type SnapshotID struct {
	EndOffset batch.Offset
	Epoch     batch.Epoch
}

// AbortedTransaction tells a consumer what to drop.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset batch.Offset
}

// noReplica is the state of a request that comes from a consumer.
func noReplica() FetchReplicaState { return FetchReplicaState{ReplicaID: -1, ReplicaEpoch: -1} }

// NewFetchRequest holds the schema's defaults.
func NewFetchRequest() *FetchRequest {
	return &FetchRequest{ReplicaID: -1, ReplicaState: noReplica(), MaxBytes: math.MaxInt32, SessionEpoch: -1}
}

// DefaultFetchPartition holds the schema's defaults.
func DefaultFetchPartition() FetchPartition {
	return FetchPartition{CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: math.MaxInt64}
}

// DefaultFetchPartitionResponse holds the schema's defaults.
func DefaultFetchPartitionResponse() FetchPartitionResponse {
	return FetchPartitionResponse{LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
}

// Key is KeyFetch.
func (*FetchRequest) Key() Key { return KeyFetch }

// Key is KeyFetch.
func (*FetchResponse) Key() Key { return KeyFetch }

// Replica is the broker id of the follower that sent the request, whichever
// field its version has for it, or a negative number for a consumer.
func (r *FetchRequest) Replica() int32 {
	if r.ReplicaState.ReplicaID >= 0 {
		return r.ReplicaState.ReplicaID
	}
	return r.ReplicaID
}

func (r *FetchRequest) code(c *codec.Coder) {
	v := c.Version()
	if v < 15 {
		c.Int32(&r.ReplicaID)
	}
	c.Int32(&r.MaxWaitMs)
	c.Int32(&r.MinBytes)
	c.Int32(&r.MaxBytes)
	c.Int8(&r.IsolationLevel)
	if v >= 7 {
		c.Int32(&r.SessionID)
		c.Int32(&r.SessionEpoch)
	}
	codec.ArrayOf(c, &r.Topics, 56, codeFetchTopic)
	if v >= 7 {
		codec.ArrayOf(c, &r.ForgottenTopicsData, 56, codeForgottenTopic)
	}
	if v >= 11 {
		c.String(&r.RackID)
	}
	present := codec.TagSet(0).With(0, r.ClusterID != nil).With(1, r.ReplicaState != noReplica() && v >= 15)
	codec.Tagged(c, r, present, codeFetchRequestTag)
}

func codeFetchRequestTag(c *codec.Coder, r *FetchRequest, tag uint32) bool {
	switch {
	case tag == 0:
		c.NullableString(&r.ClusterID)
	case tag == 1 && c.Version() >= 15:
		c.Int32(&r.ReplicaState.ReplicaID)
		c.Int64(&r.ReplicaState.ReplicaEpoch)
		c.Tags()
	default:
		return false
	}
	return true
}

func codeFetchTopic(c *codec.Coder, t *FetchTopic) {
	codeTopicRef(c, &t.Topic, &t.TopicID, 13)
	codec.ArrayOf(c, &t.Partitions, 56, codeFetchPartition)
	c.Tags()
}

func codeFetchPartition(c *codec.Coder, p *FetchPartition) {
	v := c.Version()
	if c.Reading() {
		*p = DefaultFetchPartition()
	}
	c.Int32(&p.Partition)
	if v >= 9 {
		codeEpoch(c, &p.CurrentLeaderEpoch)
	}
	codeOffset(c, &p.FetchOffset)
	if v >= 12 {
		codeEpoch(c, &p.LastFetchedEpoch)
	}
	if v >= 5 {
		codeOffset(c, &p.LogStartOffset)
	}
	c.Int32(&p.PartitionMaxBytes)
	present := codec.TagSet(0).
		With(0, p.ReplicaDirectoryID != [16]byte{} && v >= 17).
		With(1, p.HighWatermark != math.MaxInt64 && v >= 18)
	codec.Tagged(c, p, present, codeFetchPartitionTag)
}

func codeFetchPartitionTag(c *codec.Coder, p *FetchPartition, tag uint32) bool {
	switch {
	case tag == 0 && c.Version() >= 17:
		c.UUID(&p.ReplicaDirectoryID)
	case tag == 1 && c.Version() >= 18:
		codeOffset(c, &p.HighWatermark)
	default:
		return false
	}
	return true
}

func codeForgottenTopic(c *codec.Coder, t *ForgottenTopic) {
	codeTopicRef(c, &t.Topic, &t.TopicID, 13)
	c.Int32s(&t.Partitions)
	c.Tags()
}

func (r *FetchResponse) code(c *codec.Coder) {
	v := c.Version()
	c.Int32(&r.ThrottleTimeMs)
	if v >= 7 {
		codeCode(c, &r.ErrorCode)
		c.Int32(&r.SessionID)
	}
	codec.ArrayOf(c, &r.Responses, 56, codeFetchTopicResponse)
	present := codec.TagSet(0).With(0, len(r.NodeEndpoints) > 0 && v >= 16)
	codec.Tagged(c, r, present, codeFetchResponseTag)
}

func codeFetchResponseTag(c *codec.Coder, r *FetchResponse, tag uint32) bool {
	if tag != 0 || c.Version() < 16 {
		return false
	}
	codec.ArrayOf(c, &r.NodeEndpoints, 32, codeNodeEndpoint)
	return true
}

func codeFetchTopicResponse(c *codec.Coder, t *FetchTopicResponse) {
	codeTopicRef(c, &t.Topic, &t.TopicID, 13)
	codec.ArrayOf(c, &t.Partitions, 120, codeFetchPartitionResponse)
	c.Tags()
}

func codeFetchPartitionResponse(c *codec.Coder, p *FetchPartitionResponse) {
	v := c.Version()
	if c.Reading() {
		*p = DefaultFetchPartitionResponse()
	}
	c.Int32(&p.PartitionIndex)
	codeCode(c, &p.ErrorCode)
	codeOffset(c, &p.HighWatermark)
	codeOffset(c, &p.LastStableOffset)
	if v >= 5 {
		codeOffset(c, &p.LogStartOffset)
	}
	codec.NullableArrayOf(c, &p.AbortedTransactions, 16, codeAbortedTransaction)
	if v >= 11 {
		c.Int32(&p.PreferredReadReplica)
	}
	codeFetchRecords(c, p)
	present := codec.TagSet(0).With(0, p.DivergingEpoch != nil).With(1, p.CurrentLeader != nil).With(2, p.SnapshotID != nil)
	codec.Tagged(c, p, present, codeFetchPartitionResponseTag)
}

func codeFetchRecords(c *codec.Coder, p *FetchPartitionResponse) {
	switch {
	case c.Reading():
		c.NullableBytes32(&p.Records)
	case p.RecordsSize != 0:
		c.Gap(p.RecordsSize)
	default:
		c.Bytes32(&p.Records)
	}
}

func codeFetchPartitionResponseTag(c *codec.Coder, p *FetchPartitionResponse, tag uint32) bool {
	switch tag {
	case 0:
		codec.Struct(c, &p.DivergingEpoch, 16, codeEpochEndOffset)
	case 1:
		codec.Struct(c, &p.CurrentLeader, 8, codeLeaderIDAndEpoch)
	case 2:
		codec.Struct(c, &p.SnapshotID, 16, codeSnapshotID)
	default:
		return false
	}
	return true
}

func codeAbortedTransaction(c *codec.Coder, a *AbortedTransaction) {
	c.Int64(&a.ProducerID)
	codeOffset(c, &a.FirstOffset)
	c.Tags()
}

func codeEpochEndOffset(c *codec.Coder, e *EpochEndOffset) {
	codeEpoch(c, &e.Epoch)
	codeOffset(c, &e.EndOffset)
	c.Tags()
}

func codeSnapshotID(c *codec.Coder, s *SnapshotID) {
	codeOffset(c, &s.EndOffset)
	codeEpoch(c, &s.Epoch)
	c.Tags()
}
