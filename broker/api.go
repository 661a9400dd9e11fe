package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/batch"
)

// Handler is the first stage of an API. It runs on the connection's reader, in
// the order of the requests, submits, and waits for nothing. What the request
// holds of its frame is gone when it returns. A nil Pending means that there is
// no answer.
type Handler func(ctx context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending

// apiRow is one API that this broker serves, in all versions that wire knows.
type apiRow struct {
	key    wire.Key
	handle Handler
	// maxBytes bounds one request; 0 leaves it at the server's bound.
	maxBytes int
	// factor times the size of a request is about the memory that it takes until it
	// is answered; 0 where that is no more than decoding it takes.
	factor int
	// brief requests hold nothing of their frame after the first stage, which may
	// be long before they are answered.
	brief bool
	// mutes keeps the reader from the next request until this one is answered:
	// its effect comes with the second stage, and the next one should see it.
	mutes bool
}

const (
	// listRequest bounds requests that list topics and partitions. Decoding and
	// answering them takes many times their size.
	listRequest = 4 << 20
	// memberRequest bounds what one member says about itself, which is stored.
	memberRequest = 1 << 20
	// plainRequest bounds requests that list nothing.
	plainRequest = 128 << 10
	// listFactor is for requests whose answers say much about each thing that they
	// list. A partition of a Fetch is 16 to 33 bytes, by version, and some 400 until it
	// is answered: what is read, what was read of it, its answer, and that encoded.
	listFactor = 16
)

// apiRows is the table of handlers.
func apiRows() []apiRow {
	return []apiRow{
		{key: wire.KeyProduce, handle: handleProduce, brief: true},
		{key: wire.KeyFetch, handle: handleFetch, maxBytes: listRequest, factor: listFactor},
		{key: wire.KeyListOffsets, handle: handleListOffsets, maxBytes: listRequest},
		{key: wire.KeyMetadata, handle: handleMetadata, maxBytes: listRequest, factor: listFactor},
		{key: wire.KeyOffsetCommit, handle: handleOffsetCommit, maxBytes: listRequest},
		{key: wire.KeyOffsetFetch, handle: handleOffsetFetch, maxBytes: listRequest},
		{key: wire.KeyFindCoordinator, handle: handleFindCoordinator, maxBytes: plainRequest},
		{key: wire.KeyJoinGroup, handle: handleJoinGroup, maxBytes: memberRequest, brief: true},
		{key: wire.KeyHeartbeat, handle: handleHeartbeat, maxBytes: plainRequest},
		{key: wire.KeyLeaveGroup, handle: handleLeaveGroup, maxBytes: plainRequest, brief: true},
		{key: wire.KeySyncGroup, handle: handleSyncGroup, maxBytes: listRequest, brief: true},
		{key: wire.KeyDescribeGroups, handle: handleDescribeGroups, maxBytes: plainRequest},
		{key: wire.KeyListGroups, handle: handleListGroups, maxBytes: plainRequest},
		{key: wire.KeyApiVersions, handle: handleApiVersions, maxBytes: plainRequest},
		{key: wire.KeyCreateTopics, handle: handleCreateTopics, maxBytes: listRequest, mutes: true},
		{key: wire.KeyDeleteTopics, handle: handleDeleteTopics, maxBytes: listRequest, mutes: true},
		{key: wire.KeyDeleteRecords, handle: handleDeleteRecords, maxBytes: listRequest, mutes: true},
		{key: wire.KeyInitProducerID, handle: handleInitProducerID, maxBytes: plainRequest},
		{key: wire.KeyOffsetForLeaderEpoch, handle: handleOffsetForLeaderEpoch, maxBytes: listRequest},
		{key: wire.KeyDescribeConfigs, handle: handleDescribeConfigs, maxBytes: listRequest},
		{key: wire.KeyAlterConfigs, handle: handleAlterConfigs, maxBytes: listRequest, mutes: true},
		{key: wire.KeyDescribeLogDirs, handle: handleDescribeLogDirs, maxBytes: listRequest},
		{key: wire.KeyCreatePartitions, handle: handleCreatePartitions, maxBytes: listRequest, mutes: true},
		{key: wire.KeyDeleteGroups, handle: handleDeleteGroups, maxBytes: plainRequest},
		{key: wire.KeyElectLeaders, handle: handleElectLeaders, maxBytes: listRequest, mutes: true},
		{key: wire.KeyIncrementalAlterConfigs, handle: handleIncrementalAlterConfigs, maxBytes: listRequest, mutes: true},
		{key: wire.KeyAlterPartitionReassignments, handle: handleAlterPartitionReassignments, maxBytes: listRequest, factor: listFactor, mutes: true},
		{key: wire.KeyListPartitionReassignments, handle: handleListPartitionReassignments, maxBytes: listRequest, factor: listFactor},
		{key: wire.KeyOffsetDelete, handle: handleOffsetDelete, maxBytes: listRequest},
		{key: wire.KeyDescribeQuorum, handle: handleDescribeQuorum, maxBytes: plainRequest},
		{key: wire.KeyDescribeCluster, handle: handleDescribeCluster, maxBytes: plainRequest},
		{key: wire.KeyDescribeProducers, handle: handleDescribeProducers, maxBytes: listRequest},
		{key: wire.KeyUnregisterBroker, handle: handleUnregisterBroker, maxBytes: plainRequest, mutes: true},
		{key: wire.KeyConsumerGroupHeartbeat, handle: handleConsumerGroupHeartbeat, maxBytes: memberRequest, brief: true},
		{key: wire.KeyConsumerGroupDescribe, handle: handleConsumerGroupDescribe, maxBytes: plainRequest},
		{key: wire.KeyListConfigResources, handle: handleListConfigResources, maxBytes: plainRequest},
		{key: wire.KeyDescribeTopicPartitions, handle: handleDescribeTopicPartitions, maxBytes: listRequest},
		{key: wire.KeyAddRaftVoter, handle: handleAddRaftVoter, maxBytes: plainRequest, mutes: true},
		{key: wire.KeyRemoveRaftVoter, handle: handleRemoveRaftVoter, maxBytes: plainRequest, mutes: true},
	}
}

// servedKeys is above the greatest key in the table.
const servedKeys = 128

// servedAPI is a row of both tables, handlers and wire, with its metrics.
type servedAPI struct {
	apiRow
	api     wire.API
	metrics *apiMetrics
}

// serveAPIs fills the server's table.
func (s *server) serveAPIs(rows []apiRow) {
	for _, row := range rows {
		api, ok := wire.Lookup(row.key)
		if !ok || row.key < 0 || row.key >= servedKeys || s.apis[row.key] != nil {
			panic(fmt.Sprintf("BUG: handler for key %d, which wire has not or which is there twice", row.key))
		}
		if row.maxBytes == 0 || row.maxBytes > s.config.MaxRequestBytes {
			row.maxBytes = s.config.MaxRequestBytes
		}
		s.apis[row.key] = &servedAPI{apiRow: row, api: api, metrics: s.metrics.apis.of(api.Name)}
	}
}

// served returns the API with that key, or nil.
func (s *server) served(key wire.Key) *servedAPI {
	if key < 0 || key >= servedKeys {
		return nil
	}
	return s.apis[key]
}

// syncWait bounds how long an answer waits for the controller: longer than one takes to be elected.
// Then the client is told to look for who answers it now, which may be another node.
const syncWait = 2 * time.Second

// backend is what handlers see of the node. It does not change while the server runs.
type backend struct {
	self fsm.BrokerID
	// image is the newest Image that this node has applied.
	image func() *fsm.Image
	// sync waits until image shows all that had been decided anywhere when it was called: for
	// answers that whoever replaced this node, without its knowing, could contradict.
	sync func(context.Context) error
	// partition returns the replica hosted here, or a nil interface.
	partition func(fsm.TopicPartition) replica
	// admin creates and deletes topics, on whichever node decides.
	admin topicAdmin
	// controller is the node that decides now, if it is known.
	controller func() (fsm.BrokerID, bool)
	// producerID returns a producer id that nobody had before.
	producerID func(ctx context.Context) (int64, error)
	// groups coordinates the groups whose slots this node owns.
	groups *groups
	// ops is what the APIs of operators need.
	ops     *operations
	metrics *metrics
	log     hclog.Logger
}

// stillLeads asks the controller, and returns whether this node leads a partition in an epoch after
// that: then no other has led it since. Nothing is led when no controller answers.
func (b *backend) stillLeads(ctx context.Context) func(fsm.TopicPartition, batch.Epoch) bool {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	synced := b.sync(ctx) == nil
	im := b.image()
	return func(tp fsm.TopicPartition, e batch.Epoch) bool {
		p, ok := im.Partition(tp)
		return synced && ok && p.Leader == b.self && p.LeaderEpoch == e
	}
}

// replica is a partition as handlers see it: *Partition, or a test's.
type replica interface {
	Append(b batch.Batch, acks int16) (Ticket, error)
	Read(r ReadRequest) (ReadResult, error)
	// OffsetFor takes every special timestamp that wire names but those of tiered storage.
	OffsetFor(timestamp int64, leaderEpoch batch.Epoch, committed bool) (OffsetResult, error)
	Leader() (fsm.BrokerID, batch.Epoch)
	Watch(w *Watcher)
	Unwatch(w *Watcher)
}

// awaiter is what a Ticket waits on: *Partition, or a test's.
type awaiter interface {
	await(ctx context.Context, t Ticket) error
}

// topicAdmin is the part of the controller that clients may use: *controller.Node.
type topicAdmin interface {
	CreateTopics(ctx context.Context, topics []controller.NewTopic) ([]controller.TopicResult, error)
	DeleteTopics(ctx context.Context, ids []fsm.TopicID) ([]controller.TopicResult, error)
}

// locate finds the replica of a partition here, or says why there is none.
func (b *backend) locate(im *fsm.Image, tp fsm.TopicPartition) (replica, error) {
	if r := b.partition(tp); r != nil {
		return r, nil
	}
	if _, ok := im.Partition(tp); ok {
		return nil, errNotLeader
	}
	return nil, errUnknownPartition
}

// topicOf finds a topic by its name or, in versions from idFrom on, by its id.
func topicOf(im *fsm.Image, version, idFrom int16, name string, id [16]byte) (*fsm.Topic, error) {
	if version >= idFrom {
		if t, ok := im.Topic(id); ok {
			return t, nil
		}
		return nil, errUnknownTopicID
	}
	if t, ok := im.TopicByName(name); ok {
		return t, nil
	}
	return nil, errUnknownPartition
}

// hints collects where the leaders are that responses tell their clients about.
type hints struct {
	im    *fsm.Image
	nodes []wire.NodeEndpoint
}

// leader is the hint for one partition, nil when the Image knows no such partition.
func (h *hints) leader(tp fsm.TopicPartition) *wire.LeaderIDAndEpoch {
	p, ok := h.im.Partition(tp)
	if !ok {
		return nil
	}
	if b, ok := h.im.Broker(p.Leader); ok && !h.named(p.Leader) {
		h.nodes = append(h.nodes, wire.NodeEndpoint{
			NodeID: int32(b.ID), Host: b.Client.Host, Port: b.Client.Port, Rack: optional(b.Rack)})
	}
	return &wire.LeaderIDAndEpoch{LeaderID: int32(p.Leader), LeaderEpoch: p.LeaderEpoch}
}

func (h *hints) named(id fsm.BrokerID) bool {
	for _, n := range h.nodes {
		if n.NodeID == int32(id) {
			return true
		}
	}
	return false
}

// optional is a nullable string that is null when empty.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
