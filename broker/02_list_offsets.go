package broker

import (
	"context"
	"errors"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleListOffsets(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	return func(context.Context) Reply {
		l := listOffsets{
			srv:     c.srv,
			version: h.Version,
			req:     r.(*wire.ListOffsetsRequest),
			im:      c.srv.backend.image(),
			seen:    make(map[fsm.TopicPartition]bool),
		}
		return Reply{Body: l.response()}
	}
}

// listOffsets is one ListOffsets request.
type listOffsets struct {
	srv     *server
	version int16
	req     *wire.ListOffsetsRequest
	im      *fsm.Image
	seen    map[fsm.TopicPartition]bool
}

func (l *listOffsets) response() *wire.ListOffsetsResponse {
	resp := &wire.ListOffsetsResponse{Topics: make([]wire.ListOffsetsTopicResponse, len(l.req.Topics))}
	for i := range l.req.Topics {
		in, out := &l.req.Topics[i], &resp.Topics[i]
		out.Name = in.Name
		out.Partitions = make([]wire.ListOffsetsPartitionResponse, len(in.Partitions))
		t, err := topicOf(l.im, 0, 1, in.Name, [16]byte{})
		for j := range in.Partitions {
			to := &out.Partitions[j]
			*to = wire.DefaultListOffsetsPartitionResponse()
			to.PartitionIndex = in.Partitions[j].PartitionIndex
			partErr := err
			if t != nil {
				partErr = l.partition(t.ID, &in.Partitions[j], to)
			}
			if partErr != nil {
				to.ErrorCode = l.code(partErr)
			}
		}
	}
	return resp
}

func (l *listOffsets) partition(topic fsm.TopicID, in *wire.ListOffsetsPartition, out *wire.ListOffsetsPartitionResponse) error {
	tp := fsm.TopicPartition{Topic: topic, Partition: in.PartitionIndex}
	if l.seen[tp] || l.req.ReplicaID >= 0 { // followers use the peer listener
		return wire.InvalidRequest
	}
	l.seen[tp] = true
	if !timestampAllowed(in.Timestamp, l.version) {
		return wire.UnsupportedVersion
	}
	r, err := l.srv.backend.locate(l.im, tp)
	if err != nil {
		return err
	}
	if tiered(in.Timestamp) {
		// Nothing is tiered: there is no such offset. The leader epoch is checked all the same.
		_, err := r.OffsetFor(wire.TimestampEarliest, in.CurrentLeaderEpoch, false)
		return err
	}
	got, err := r.OffsetFor(in.Timestamp, in.CurrentLeaderEpoch, l.req.IsolationLevel == isolationCommitted)
	if err != nil {
		return err
	}
	out.Offset, out.Timestamp, out.LeaderEpoch = got.Offset, got.Timestamp, got.LeaderEpoch
	return nil
}

// tiered tells whether a timestamp asks where tiered storage stands.
func tiered(ts int64) bool {
	return ts == wire.TimestampLatestTiered || ts == wire.TimestampEarliestNotTiered
}

// timestampAllowed tells whether a version of the request may ask for a timestamp.
func timestampAllowed(ts int64, version int16) bool {
	switch ts {
	case wire.TimestampMax:
		return version >= 7
	case wire.TimestampEarliestLocal:
		return version >= 8
	case wire.TimestampLatestTiered:
		return version >= 9
	case wire.TimestampEarliestNotTiered:
		return version >= 11
	}
	return ts >= wire.TimestampEarliest
}

// code is the error code, in the words that older versions have.
func (l *listOffsets) code(err error) wire.Code {
	if l.version < 5 && errors.Is(err, errOffsetNotAvailable) {
		l.srv.metrics.failed(wire.LeaderNotAvailable)
		return wire.LeaderNotAvailable
	}
	return l.srv.code(err)
}
