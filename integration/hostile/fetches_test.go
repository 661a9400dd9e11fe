package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of Fetch.
const (
	badRequest     = 42
	noSession      = 70
	badSessionTurn = 71
)

// fetchRequest reads the first partitions of a topic, without a session.
func fetchRequest(topic string, partitions int) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.ReplicaID, r.SessionEpoch = 11, -1, -1
	r.MaxBytes, r.MinBytes = 50<<20, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = int32(i), 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

func fetchInputs() []input {
	return []input{
		{number: 32, name: "a fetch in the name of a broker", run: fetchAsBroker},
		{number: 32, name: "fetch sessions and turns made up", run: fetchMadeUp},
		{number: 32, name: "a hundred thousand new fetch sessions", run: fetchSessions},
		{number: 32, name: "a fetch of 2^31-1 bytes from 10 k partitions", memory: 192 << 20, run: fetchWide},
		{number: 32, name: "5,000 fetches parked for ever at a busy partition", memory: 128 << 20, run: fetchParked},
	}
}

// fetchAsBroker is refused by its replica id: followers use another listener.
func fetchAsBroker(a *attack) string {
	c := a.dial()
	for _, id := range []int32{0, a.node.ID, 2, math.MaxInt32} {
		r := fetchRequest(witnessTopic, 1)
		r.ReplicaID = id
		a.code(fmt.Sprintf("replica %d", id), c.ask(r).(*kmsg.FetchResponse).ErrorCode, badRequest)
		r.Version = 6
		a.code(fmt.Sprintf("replica %d, version 6", id), c.ask(r).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode, badRequest)
		list := kmsg.NewPtrListOffsetsRequest()
		list.Version, list.ReplicaID = 7, id
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = witnessTopic
		t.Partitions = append(t.Partitions, kmsg.NewListOffsetsRequestTopicPartition())
		list.Topics = append(list.Topics, t)
		a.code("offsets for it", c.ask(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode, badRequest)
	}
	return "42: followers have a listener of their own"
}

func fetchMadeUp(a *attack) string {
	c := a.dial()
	seed := rand.Uint64()
	a.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	fresh := fetchRequest(prey, 1)
	fresh.SessionEpoch = 0
	own := c.ask(fresh).(*kmsg.FetchResponse).SessionID
	if own == 0 {
		a.Fatal("no session was made")
	}
	for range 500 {
		r := fetchRequest(prey, 1)
		if r.SessionID = rnd.Int32(); r.SessionID == own {
			continue
		}
		r.SessionEpoch = rnd.Int32N(math.MaxInt32) + 1
		a.code(fmt.Sprintf("session %d", r.SessionID), c.ask(r).(*kmsg.FetchResponse).ErrorCode, noSession)
		r.SessionID, r.SessionEpoch = own, rnd.Int32N(math.MaxInt32-2)+2
		a.code(fmt.Sprintf("turn %d", r.SessionEpoch), c.ask(r).(*kmsg.FetchResponse).ErrorCode, badSessionTurn)
	}
	return "70, 71"
}

// fetchSessions makes sessions and never uses them.
func fetchSessions(a *attack) string {
	conns := make([]*conn, 4)
	for i := range conns {
		conns[i] = a.dial()
	}
	n := a.flood(len(conns), a.size(5_000, 100_000), func(worker, _ int) error {
		r := fetchRequest(prey, 1)
		r.SessionEpoch, r.MaxWaitMillis = 0, 0
		resp, err := conns[worker].try(r)
		if err == nil && resp.(*kmsg.FetchResponse).ErrorCode != ok {
			err = fmt.Errorf("a new session: code %d", resp.(*kmsg.FetchResponse).ErrorCode)
		}
		return err
	})
	const slots = 1000
	kept := a.process.metrics(a.T)["weir_fetch_sessions"]
	if kept > slots {
		a.Errorf("%.0f sessions are kept, want at most %d", kept, slots)
	}
	return fmt.Sprintf("answered; of %d sessions %.0f are kept", n, kept)
}

// fetchWide asks for everything of very many partitions, again and again, on
// connections that do not read.
func fetchWide(a *attack) string {
	partitions := a.size(500, 10_000)
	c := a.dial()
	a.code("create", a.createOne(c, func(t *kmsg.CreateTopicsRequestTopic) { t.Topic, t.NumPartitions = "wide", int32(partitions) }), ok)
	r := fetchRequest("wide", partitions)
	r.MaxBytes, r.MinBytes = math.MaxInt32, 0
	for i := range r.Topics[0].Partitions {
		r.Topics[0].Partitions[i].PartitionMaxBytes = math.MaxInt32
	}
	eventually(a.T, func() error { // the replicas are made one after the other
		for _, p := range c.ask(r).(*kmsg.FetchResponse).Topics[0].Partitions {
			if p.ErrorCode != ok {
				return fmt.Errorf("partition %d: code %d", p.Partition, p.ErrorCode)
			}
		}
		return nil
	})
	conns := make([]*conn, a.size(4, 16))
	for i := range conns {
		conns[i] = a.dial()
	}
	n := a.flood(len(conns), len(conns), func(worker, _ int) error {
		_, err := conns[worker].try(r)
		return err
	})
	for _, c := range conns {
		c.raw(c.encode(r, "attacker")) // and nobody reads the answer
	}
	return fmt.Sprintf("answered, %d times from %d partitions", n, partitions)
}

// fetchParked waits for more bytes than there will be, where every record of the
// well-behaved client wakes all who wait.
func fetchParked(a *attack) string {
	r := fetchRequest(witnessTopic, 1)
	r.MaxBytes, r.MinBytes, r.MaxWaitMillis = math.MaxInt32, math.MaxInt32, math.MaxInt32
	end := a.metadataEnd(witnessTopic)
	r.Topics[0].Partitions[0].FetchOffset = end
	r.Topics[0].Partitions[0].PartitionMaxBytes = math.MaxInt32
	crowd := a.size(200, 5_000)
	for range crowd {
		c := a.dial()
		c.raw(c.encode(r, "attacker"))
	}
	before := a.process.cpu(a.T)
	since := a.witness.mark()
	a.witness.getOn(a.T, a.records)
	used := a.process.cpu(a.T) - before
	passed := a.witness.mark().at.Sub(since.at)
	return fmt.Sprintf("%d parked; the node used %.0f%% of a processor", crowd, 100*used.Seconds()/passed.Seconds())
}

// metadataEnd is the end of the only partition of a topic.
func (a *attack) metadataEnd(topic string) int64 {
	a.Helper()
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = -1, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return a.dial().ask(r).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
}
