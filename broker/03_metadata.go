package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// metadataIDs is the first version of Metadata that may ask by topic id. Versions
// 10 and 11 have the field, but no way to answer for an unknown id.
const metadataIDs = 12

// The operations that a client may do, as sets of the protocol's operation codes.
// Nothing is forbidden, since there is no authorizer.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

func handleMetadata(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	return func(context.Context) Reply {
		m := metadata{srv: c.srv, version: h.Version, req: r.(*wire.MetadataRequest), im: c.srv.backend.image()}
		return Reply{Body: m.response()}
	}
}

// metadata is one Metadata request, answered from one Image. Topics that are
// asked for by name and missing may be created later by it.
type metadata struct {
	srv     *server
	version int16
	req     *wire.MetadataRequest
	im      *fsm.Image
}

func (m *metadata) response() *wire.MetadataResponse {
	resp := wire.NewMetadataResponse()
	resp.ClusterID = optional(m.im.ClusterID())
	resp.ControllerID = m.srv.controllerID(m.im)
	resp.Brokers = liveBrokers(m.im)
	if m.req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	switch {
	case m.req.Topics == nil:
		resp.Topics = make([]wire.MetadataTopic, 0, m.im.TopicCount())
		for t := range m.im.Topics() {
			resp.Topics = append(resp.Topics, m.topic(t))
		}
	case !m.wellFormed():
		m.refuse(resp)
	default:
		m.named(resp)
	}
	return resp
}

// wellFormed tells whether the version allows how the topics are asked for.
func (m *metadata) wellFormed() bool {
	for _, t := range m.req.Topics {
		byID := t.TopicID != [16]byte{}
		if m.version < metadataIDs && (byID || t.Name == nil) {
			return false
		}
	}
	return true
}

// refuse answers every topic with INVALID_REQUEST.
func (m *metadata) refuse(resp *wire.MetadataResponse) {
	for _, t := range m.req.Topics {
		out := wire.DefaultMetadataTopic()
		out.ErrorCode, out.Name, out.TopicID = m.srv.code(wire.InvalidRequest), t.Name, t.TopicID
		if out.Name == nil {
			out.Name = new(string)
		}
		resp.Topics = append(resp.Topics, out)
	}
}

// named answers the topics asked for, each once.
func (m *metadata) named(resp *wire.MetadataResponse) {
	seen := make(map[wire.MetadataRequestTopic]bool, len(m.req.Topics))
	names := make(map[string]bool, len(m.req.Topics))
	resp.Topics = make([]wire.MetadataTopic, 0, len(m.req.Topics))
	for _, t := range m.req.Topics {
		if t.TopicID != [16]byte{} {
			key := wire.MetadataRequestTopic{TopicID: t.TopicID}
			if !seen[key] {
				seen[key] = true
				resp.Topics = append(resp.Topics, m.byID(t.TopicID))
			}
			continue
		}
		name := ""
		if t.Name != nil {
			name = *t.Name
		}
		if !names[name] {
			names[name] = true
			resp.Topics = append(resp.Topics, m.byName(name))
		}
	}
}

func (m *metadata) byID(id fsm.TopicID) wire.MetadataTopic {
	if t, ok := m.im.Topic(id); ok {
		return m.topic(t)
	}
	out := wire.DefaultMetadataTopic()
	out.ErrorCode, out.TopicID = m.srv.code(errUnknownTopicID), id
	return out
}

func (m *metadata) byName(name string) wire.MetadataTopic {
	if t, ok := m.im.TopicByName(name); ok {
		return m.topic(t)
	}
	out := wire.DefaultMetadataTopic()
	out.ErrorCode, out.Name = m.srv.code(m.missing(name)), &name
	return out
}

// missingTopic says why there is no topic of that name.
func missingTopic(name string) error {
	if fsm.CheckTopicName(name) != nil {
		return wire.InvalidTopic
	}
	return errUnknownPartition
}

func (m *metadata) topic(t *fsm.Topic) wire.MetadataTopic {
	out := wire.DefaultMetadataTopic()
	out.Name, out.TopicID, out.IsInternal = &t.Name, t.ID, isInternal(t.Name)
	if m.req.IncludeTopicAuthorizedOperations {
		out.TopicAuthorizedOperations = topicOperations
	}
	out.Partitions = make([]wire.MetadataPartition, 0, t.Partitions)
	for i, p := range m.im.Partitions(t.ID) {
		out.Partitions = append(out.Partitions, m.partition(i, p))
	}
	return out
}

func (m *metadata) partition(index int32, p fsm.Partition) wire.MetadataPartition {
	leader, code := liveLeader(m.im, p)
	return wire.MetadataPartition{
		ErrorCode:       code,
		PartitionIndex:  index,
		LeaderID:        leader,
		LeaderEpoch:     p.LeaderEpoch,
		ReplicaNodes:    brokerIDs(p.Replicas),
		IsrNodes:        brokerIDs(p.ISR),
		OfflineReplicas: offline(m.im, p.Replicas),
	}
}

// controllerID is the node to tell clients for the controller, -1 when there is
// none that they can reach. Any node passes their calls on.
func (s *server) controllerID(im *fsm.Image) int32 {
	id, ok := s.backend.controller()
	if !ok || !live(im, id) {
		return int32(fsm.NoBroker)
	}
	return int32(id)
}

// liveBrokers are the brokers that clients should connect to.
func liveBrokers(im *fsm.Image) []wire.MetadataBroker {
	var out []wire.MetadataBroker
	for b := range im.Brokers() {
		if !b.Fenced {
			out = append(out, wire.MetadataBroker{NodeID: int32(b.ID), Host: b.Client.Host, Port: b.Client.Port, Rack: optional(b.Rack)})
		}
	}
	return out
}

// live tells whether a broker is registered and not fenced.
func live(im *fsm.Image, id fsm.BrokerID) bool {
	b, ok := im.Broker(id)
	return ok && !b.Fenced
}

// liveLeader is the leader to tell clients, and the code that goes with it.
func liveLeader(im *fsm.Image, p fsm.Partition) (int32, wire.Code) {
	if live(im, p.Leader) {
		return int32(p.Leader), wire.None
	}
	return int32(fsm.NoBroker), wire.LeaderNotAvailable
}

// offline are the replicas on brokers that are not live.
func offline(im *fsm.Image, replicas []fsm.BrokerID) []int32 {
	var out []int32
	for _, id := range replicas {
		if !live(im, id) {
			out = append(out, int32(id))
		}
	}
	return out
}

func brokerIDs(ids []fsm.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
