package controller

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// NewTopic is a topic to be created.
type NewTopic struct {
	// ID may be left zero; CreateTopics then chooses one, and another for each repetition.
	ID fsm.TopicID
	// Tried are ids of earlier tries of the same request whose outcome is not known, the last
	// few. A topic that exists under one of them or ID counts as created.
	Tried []fsm.TopicID
	Name  string
	// Partitions and RF may be -1 for the defaults, and must be when Assignment is given.
	Partitions int32
	RF         int16
	// Assignment names the replicas of each partition, the preferred leader first; nil lets
	// the controller place them.
	Assignment [][]fsm.BrokerID
	// Configs are topic configs by Kafka's names.
	Configs [][2]string
	// ValidateOnly asks what would happen.
	ValidateOnly bool
}

// TopicResult is the outcome for one topic of a request.
type TopicResult struct {
	ID fsm.TopicID
	Outcome
	// Partitions and RF are what the topic got.
	Partitions int32
	RF         int16
}

// createTries is how often a topic is placed anew when brokers came or went meanwhile.
const createTries = 3

// CreateTopics has topics created by the controller and returns one result each, in order,
// once the local Image shows them.
func (n *Node) CreateTopics(ctx context.Context, topics []NewTopic) ([]TopicResult, error) {
	topics = slices.Clone(topics)
	for i := range topics {
		if topics[i].ID == (fsm.TopicID{}) {
			topics[i].ID = newTopicID()
		}
	}
	return n.changeTopics(ctx, &createTopicsRequest{topics: topics})
}

// triedMax bounds NewTopic.Tried.
const triedMax = 16

// renewed is the request with other ids. An id is put into the log once: what creates it late,
// after the topic was made by a later try, deleted and confirmed as gone, must be refused, and
// by then nothing tells that the id has been a topic's (H22).
func (r *createTopicsRequest) renewed() request {
	topics := slices.Clone(r.topics)
	for i := range topics {
		t := &topics[i]
		t.Tried = append(slices.Clone(t.Tried[max(0, len(t.Tried)-triedMax+1):]), t.ID)
		t.ID = newTopicID()
	}
	return &createTopicsRequest{topics: topics}
}

// DeleteTopics has topics deleted by the controller and returns one result each, in order.
func (n *Node) DeleteTopics(ctx context.Context, ids []fsm.TopicID) ([]TopicResult, error) {
	return n.changeTopics(ctx, &deleteTopicsRequest{ids: ids})
}

func (n *Node) changeTopics(ctx context.Context, req request) ([]TopicResult, error) {
	rep, err := n.callAndSee(ctx, req)
	if err != nil {
		return nil, err
	}
	return rep.(*topicsReply).results, nil
}

// newTopicID draws a random topic id whose text form does not begin with a dash, which
// command lines would take for a flag.
func newTopicID() fsm.TopicID {
	for {
		id := fsm.TopicID(newUUID())
		if id[0]>>2 != 62 {
			return id
		}
	}
}

// newUUID draws a random UUID, version 4.
func newUUID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails: the process would end
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

func failed(code wire.Code, format string, args ...any) TopicResult {
	return TopicResult{Outcome: refuse(code, format, args...), Partitions: -1, RF: -1}
}

// createTopics checks, places and creates each topic. It runs on the caller's goroutine: it
// needs no soft state, and Apply's guards catch what changes meanwhile.
func (t *term) createTopics(ctx context.Context, r *createTopicsRequest) (reply, error) {
	rep := topicsReply{index: t.n.Image().Index(), results: make([]TopicResult, len(r.topics))}
	names := make(map[string]int, len(r.topics))
	for _, nt := range r.topics {
		names[nt.Name]++
	}
	for i, nt := range r.topics {
		if names[nt.Name] > 1 {
			rep.results[i] = failed(wire.InvalidRequest, "Duplicate topic name %s in the request.", nt.Name)
			continue
		}
		res, index, err := t.createTopic(ctx, nt)
		if err != nil {
			return nil, err
		}
		rep.results[i], rep.index = res, max(rep.index, index)
	}
	return &rep, nil
}

// createTopic creates one topic; the error is for the whole request.
func (t *term) createTopic(ctx context.Context, nt NewTopic) (TopicResult, uint64, error) {
	for try := 1; ; try++ {
		im := t.n.Image()
		if old, ok := im.TopicByName(nt.Name); ok {
			return existing(im, old, nt), im.Index(), nil
		}
		c, res := t.plan(im, nt)
		if c == nil || nt.ValidateOnly {
			return res, 0, nil
		}
		a, err := t.n.apply(ctx, fsm.EncodeEntry(nil, []fsm.Command{*c}))
		if err != nil {
			return TopicResult{}, 0, err
		}
		refusal := refusalOf(a.results[0])
		switch {
		case !refused(a.results[0]):
			t.log.Info("topic created", "topic", nt.Name, "partitions", res.Partitions, "replication", res.RF)
			return res, a.index, nil
		case refusal == fsm.TopicExists:
			continue // the next round finds it
		case try < createTries && (refusal == fsm.IneligibleReplica || refusal == fsm.UnknownBroker):
			continue
		case refusal == fsm.BadCommand:
			return TopicResult{}, 0, fmt.Errorf("BUG: the planned topic %s is malformed", nt.Name)
		default:
			return failed(wire.NotEnoughReplicas, "The brokers changed while topic %s was being placed; try again.", nt.Name), 0, nil
		}
	}
}

// existing answers for a name that is taken: by an earlier try of this very request, or not.
func existing(im *fsm.Image, old *fsm.Topic, nt NewTopic) TopicResult {
	if old.ID != nt.ID && !slices.Contains(nt.Tried, old.ID) {
		return failed(wire.TopicAlreadyExists, "Topic '%s' already exists.", nt.Name)
	}
	p, _ := im.Partition(fsm.TopicPartition{Topic: old.ID})
	return TopicResult{ID: old.ID, Partitions: old.Partitions, RF: int16(len(p.Replicas))}
}

// plan checks a new topic and makes the command that creates it; nil when it can not be.
func (t *term) plan(im *fsm.Image, nt NewTopic) (*fsm.CreateTopic, TopicResult) {
	if err := fsm.CheckTopicName(nt.Name); err != nil {
		return nil, failed(wire.InvalidTopic, "%v", err)
	}
	if other, ok := alike(im, nt.Name); ok {
		return nil, failed(wire.InvalidTopic, "Topic '%s' collides with existing topic: %s", nt.Name, other)
	}
	if _, err := fsm.ParseTopicConfigs(nt.Configs); err != nil {
		return nil, failed(wire.InvalidConfig, "%v", err)
	}
	var placed [][]fsm.BrokerID
	var res TopicResult
	if nt.Assignment != nil {
		placed, res = t.checkAssignment(im, nt)
	} else {
		placed, res = t.place(im, nt)
	}
	if res.Err != wire.None {
		return nil, res
	}
	c := &fsm.CreateTopic{ID: nt.ID, Name: nt.Name, Configs: nt.Configs}
	for i, replicas := range placed {
		p, ok := elect.Initial(im, replicas)
		if !ok {
			return nil, failed(wire.InvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", i)
		}
		c.Partitions = append(c.Partitions, p)
	}
	return c, TopicResult{ID: nt.ID, Partitions: int32(len(placed)), RF: int16(len(placed[0]))}
}

// alike finds a topic whose name differs from name in nothing but dots and
// underscores. Kafka refuses such pairs, since its metrics cannot tell them apart, and
// neither can a reader.
//
// A name with few of them has fewer such relatives than there may be topics, and they
// are looked up one by one.
func alike(im *fsm.Image, name string) (string, bool) {
	var at []int
	for i, c := range []byte(name) {
		if c == '.' || c == '_' {
			at = append(at, i)
		}
	}
	const fewest = 6
	if len(at) > fewest && 1<<min(len(at), 32) > im.TopicCount() {
		for t := range im.Topics() {
			if t.Name != name && sameButDots(t.Name, name) {
				return t.Name, true
			}
		}
		return "", false
	}
	other := []byte(name)
	for set := range 1 << len(at) {
		for bit, i := range at {
			other[i] = "._"[set>>bit&1]
		}
		if t, ok := im.TopicByName(string(other)); ok && t.Name != name {
			return t.Name, true
		}
	}
	return "", false
}

// sameButDots tells whether two names are the same when a dot counts as an underscore.
func sameButDots(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && !(strings.IndexByte("._", a[i]) >= 0 && strings.IndexByte("._", b[i]) >= 0) {
			return false
		}
	}
	return true
}

// place lets the controller choose the replicas.
func (t *term) place(im *fsm.Image, nt NewTopic) ([][]fsm.BrokerID, TopicResult) {
	d := t.n.cfg.Topics
	partitions, rf := nt.Partitions, nt.RF
	if partitions == -1 {
		partitions = d.Partitions
	}
	switch {
	case rf == 0 || rf < -1:
		return nil, failed(wire.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case partitions < 1:
		return nil, failed(wire.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case partitions > d.PartitionsMax:
		return nil, failed(wire.InvalidPartitions, "A topic may have at most %d partitions.", d.PartitionsMax)
	}
	if rf == -1 {
		rf = t.defaultRF()
	}
	if rf > fsm.MaxReplicas {
		return nil, failed(wire.InvalidReplicationFactor, "Replication factor %d is above the limit of %d.", rf, fsm.MaxReplicas)
	}
	placed, err := elect.Place(im, int(partitions), int(rf), placementSeed(nt.ID))
	var few *elect.TooFewBrokersError
	switch {
	case err == nil:
		return placed, TopicResult{}
	case errors.As(err, &few) && nt.RF != -1 && few.Registered < few.Wanted:
		return nil, failed(wire.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.",
			rf, rf, few.Registered)
	case errors.As(err, &few):
		// The default asks for what the cluster will have once its first nodes are up.
		return nil, failed(wire.NotEnoughReplicas, "Brokers are still missing: %v; try again.", err)
	}
	return nil, failed(wire.InvalidReplicationFactor, "%v", err)
}

// defaultRF is default.replication.factor, or min(3, nodes) whether or not they are up: those
// that vote, which are all that a new cluster has before they have registered, or those that
// have registered, if that is more, as where one has joined in place of a voter that died.
func (t *term) defaultRF() int16 {
	if rf := t.n.cfg.Topics.ReplicationFactor; rf > 0 {
		return rf
	}
	registered := 0
	for range t.n.Image().Brokers() {
		registered++
	}
	return int16(max(1, min(3, max(registered, t.n.electorate().size()))))
}

// placementSeed breaks ties of the placement differently for each topic, and the same for
// each try.
func placementSeed(id fsm.TopicID) uint64 { return binary.BigEndian.Uint64(id[8:]) }

// checkAssignment checks replicas that the request names.
func (t *term) checkAssignment(im *fsm.Image, nt NewTopic) ([][]fsm.BrokerID, TopicResult) {
	a := nt.Assignment
	switch {
	case nt.RF != -1:
		return nil, failed(wire.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	case nt.Partitions != -1:
		return nil, failed(wire.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	case len(a) == 0 || len(a) > int(t.n.cfg.Topics.PartitionsMax):
		return nil, failed(wire.InvalidPartitions, "The manual partition assignment names %d partitions; 1 to %d are allowed.", len(a), t.n.cfg.Topics.PartitionsMax)
	}
	for i, replicas := range a {
		if why := badReplicas(im, replicas, len(a[0])); why != "" {
			return nil, failed(wire.InvalidReplicaAssignment, "The manual partition assignment of partition %d %s.", i, why)
		}
	}
	return a, TopicResult{}
}

// badReplicas says what is wrong with one partition's replicas, or "".
func badReplicas(im *fsm.Image, replicas []fsm.BrokerID, want int) string {
	switch {
	case len(replicas) == 0:
		return "has an empty replica list"
	case len(replicas) > fsm.MaxReplicas:
		return fmt.Sprintf("has more than %d replicas", fsm.MaxReplicas)
	case len(replicas) != want:
		return fmt.Sprintf("has %d replica(s), but partition 0 has %d", len(replicas), want)
	}
	for i, id := range replicas {
		if slices.Contains(replicas[:i], id) {
			return fmt.Sprintf("includes broker %d twice", id)
		}
		if _, ok := im.Broker(id); !ok {
			return fmt.Sprintf("includes broker %d, which is not registered", id)
		}
	}
	return ""
}

// deleteTopics deletes each topic in one entry.
func (t *term) deleteTopics(ctx context.Context, r *deleteTopicsRequest) (reply, error) {
	rep := topicsReply{index: t.n.Image().Index(), results: make([]TopicResult, len(r.ids))}
	if len(r.ids) == 0 {
		return &rep, nil
	}
	commands := make([]fsm.Command, len(r.ids))
	for i, id := range r.ids {
		commands[i] = fsm.DeleteTopic{ID: id}
	}
	a, err := t.n.apply(ctx, fsm.EncodeEntry(nil, commands))
	if err != nil {
		return nil, err
	}
	rep.index = a.index
	for i, id := range r.ids {
		if a.results[i].Err != nil {
			rep.results[i] = failed(wire.UnknownTopicID, "This server does not host this topic ID.")
		}
		rep.results[i].ID = id
	}
	return &rep, nil
}
