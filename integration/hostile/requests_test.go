package hostile

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestInputs are requests about topics that cannot be served as they are.
func requestInputs() []input {
	return []input{
		{number: 17, name: "54 M topics in eight bytes", run: refusedBodies(
			header(3, 1, 0x03, 0x37, 0xf0, 0x00),
			header(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x07),
			header(1, 4, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x7f, 0xff, 0xff, 0xff),
		)},
		{number: 18, name: "metadata of a million unknown topics, to be created", run: unknownTopics},
		{number: 19, name: "topics of 2^31-1 partitions, 32767 replicas, the same replica twice", run: impossibleTopics},
		{number: 20, name: "names that are paths, too long, or alike", run: hostileNames},
	}
}

// unknownTopics asks for made-up topics: a list that is too large closes the
// connection, smaller ones are told that there are no such topics, and of all of
// them some hundreds at most are created.
func unknownTopics(a *attack) string {
	list := func(from, n int) *kmsg.MetadataRequest {
		r := kmsg.NewPtrMetadataRequest()
		r.Version, r.AllowAutoTopicCreation = 7, true
		for i := range n {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(fmt.Sprintf("made-up-by-the-attacker-%08d", from+i))
			r.Topics = append(r.Topics, t)
		}
		return r
	}
	c := a.dial()
	c.raw(c.encode(list(0, 1_000_000), "attacker"))
	c.closed()
	c = a.dial()
	const each = 50_000
	answers := map[int16]int{}
	for i := range a.size(1, 20) {
		for _, t := range c.ask(list(i*each, each)).(*kmsg.MetadataResponse).Topics {
			answers[t.ErrorCode]++
		}
	}
	if answers[3] == 0 || answers[89] == 0 || len(answers) != 2 {
		a.Errorf("the answers are %v, want codes 3 and 89", answers)
	}
	if answers[3] > 1000 {
		a.Errorf("%d topics were to be created", answers[3])
	}
	return fmt.Sprintf("closed above 4 MiB; %d of %d unknown, to be created, the rest 89", answers[3], answers[3]+answers[89])
}

// createOne creates a topic and returns the code of its answer.
func (a *attack) createOne(c *conn, change func(*kmsg.CreateTopicsRequestTopic)) int16 {
	a.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis = 7, int32(patience.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = "impossible", 1, 1
	change(&t)
	r.Topics = append(r.Topics, t)
	tries := 0
	code := a.lasting(func() int16 {
		tries++
		return c.ask(r).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
	})
	const exists = 36
	if code == exists && tries > 1 { // by a try whose outcome was unknown
		return ok
	}
	return code
}

func impossibleTopics(a *attack) string {
	assigned := func(partition int32, replicas ...int32) func(*kmsg.CreateTopicsRequestTopic) {
		return func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor = -1, -1
			p := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			p.Partition, p.Replicas = partition, replicas
			t.ReplicaAssignment = append(t.ReplicaAssignment, p)
		}
	}
	tests := []struct {
		name   string
		change func(*kmsg.CreateTopicsRequestTopic)
		want   int16
	}{
		{"2^31-1 partitions", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = math.MaxInt32 }, 37},
		{"-2 partitions", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = -2 }, 37},
		{"no partitions", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 }, 37},
		{"32767 replicas", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = math.MaxInt16 }, 38},
		{"-32768 replicas", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = math.MinInt16 }, 38},
		{"the same replica twice", assigned(0, a.node.ID, a.node.ID), 39},
		{"an unknown replica", assigned(0, math.MaxInt32), 39},
		{"no replica", assigned(0), 39},
		{"partition 2^31-1", assigned(math.MaxInt32, a.node.ID), 39},
		{"partition -1", assigned(-1, a.node.ID), 39},
	}
	c := a.dial()
	for _, tt := range tests {
		a.code(tt.name, a.createOne(c, tt.change), tt.want)
	}
	return "37, 38, 39"
}

// hostileNames are refused wherever they come, and nothing outside of the data
// folder, or with such a name in it, comes to be.
func hostileNames(a *attack) string {
	c := a.dial()
	a.code("alike.name", a.createOne(c, func(t *kmsg.CreateTopicsRequestTopic) { t.Topic = "alike.name" }), ok)
	names := []string{"../../etc/x", ".", "..", "", strings.Repeat("n", 250), "nul\x00", "a/b", `a\b`, "%2e%2e", "\x1b[31m", "ü", "alike_name"}
	for _, name := range names {
		a.code(fmt.Sprintf("create %q", name), a.createOne(c, func(t *kmsg.CreateTopicsRequestTopic) { t.Topic = name }), 17)
		if name == "alike_name" {
			continue // metadata has it created, which fails in the background
		}
		a.code(fmt.Sprintf("metadata of %q", name), a.metadataOf(c, name), 17)
		produce := a.produceRequest(plain())
		produce.Topics[0].Topic = name
		a.code(fmt.Sprintf("produce to %q", name), c.ask(produce).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, 3)
	}
	kafkas := []string{"__share_group_state", "__transaction_state", "__cluster_metadata"}
	for _, name := range kafkas {
		a.code("metadata of "+name, a.metadataOf(c, name), 3)
		a.code("metadata of "+name+", again", a.metadataOf(c, name), 3)
	}
	a.noFiles(append(names, kafkas...))
	return "17; produce: 3; Kafka's own topics are never created for asking"
}

// noFiles fails if a partition of one of the names has a folder, or anything lies
// where their paths lead.
func (a *attack) noFiles(names []string) {
	a.Helper()
	for _, dir := range []string{a.node.Data, filepath.Dir(a.node.Data)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			a.Fatal(err)
		}
		for _, e := range entries {
			for _, name := range names {
				if strings.HasPrefix(e.Name(), name+"-0") {
					a.Errorf("%q has come to be", e.Name())
				}
			}
		}
	}
	for _, name := range names {
		if path := filepath.Join(a.node.Data, name+"-0"); len(name) < 250 && !strings.ContainsRune(name, 0) {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				a.Errorf("%s: %v, want that there is nothing", path, err)
			}
		}
	}
}

// metadataOf is the code for a topic that is asked for by name.
func (a *attack) metadataOf(c *conn, name string) int16 {
	a.Helper()
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.AllowAutoTopicCreation = 7, true
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &name
	r.Topics = append(r.Topics, t)
	return c.ask(r).(*kmsg.MetadataResponse).Topics[0].ErrorCode
}

// offsetInputs ask for offsets at times that are no times.
func offsetInputs() []input {
	return []input{{number: 33, name: "offsets at -1 to the least time", run: func(a *attack) string {
		c := a.dial()
		ask := func(version int16, ts int64) int16 {
			r := kmsg.NewPtrListOffsetsRequest()
			r.Version, r.ReplicaID = version, -1
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = prey
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp, p.CurrentLeaderEpoch = ts, -1
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
			return a.lasting(func() int16 { return c.ask(r).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode })
		}
		for ts, from := range map[int64]int16{-1: 1, -2: 1, -3: 7, -4: 8, -5: 9} {
			a.code(fmt.Sprintf("time %d", ts), ask(from, ts), 0)
			if from > 1 {
				a.code(fmt.Sprintf("time %d in version %d", ts, from-1), ask(from-1, ts), 35)
			}
		}
		for _, ts := range []int64{-7, -100, math.MinInt32, math.MinInt64 + 1, math.MinInt64} {
			a.code(fmt.Sprintf("time %d", ts), ask(7, ts), 35)
		}
		a.code("the greatest time", ask(7, math.MaxInt64), 0)
		return "35 below what the version knows"
	}}}
}

// operatorInputs are calls of brokers and operators.
func operatorInputs() []input {
	return []input{
		{number: 37, name: "calls between Kafka's brokers", run: func(a *attack) string {
			keys := []int16{4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67}
			a.notServed(a.dial(), keys...)
			c := a.dial()
			for _, key := range keys[:8] {
				c.raw(header(key, 0, make([]byte, 64)...))
				c.closed()
				c = a.dial()
			}
			return "closed: not served, not advertised"
		}},
		{number: 38, name: "configs that are unknown, huge or paths; deleting beyond the end", run: operatorCalls},
		{number: 38, name: "nodes that are not there, or too many of them, for partitions and votes", run: memberCalls},
	}
}

// memberCalls asks for what no cluster can become.
func memberCalls(a *attack) string {
	c := a.dial()
	for _, id := range []int32{-1, 0, 77, math.MaxInt32, math.MinInt32} {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = id
		a.code(fmt.Sprintf("unregister %d", id), c.ask(r).(*kmsg.UnregisterBrokerResponse).ErrorCode, 102)
		add := kmsg.NewPtrAddRaftVoterRequest()
		add.VoterID, add.VoterDirectoryID = id, [16]byte{1}
		a.code(fmt.Sprintf("a vote for %d", id), c.ask(add).(*kmsg.AddRaftVoterResponse).ErrorCode, 42)
		remove := kmsg.NewPtrRemoveRaftVoterRequest()
		remove.VoterID, remove.VoterDirectoryID = id, [16]byte{1}
		a.code(fmt.Sprintf("no vote for %d", id), c.ask(remove).(*kmsg.RemoveRaftVoterResponse).ErrorCode, 127)
	}
	move := func(to ...int32) int16 {
		r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = prey
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Replicas = to
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		return c.ask(r).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0].ErrorCode
	}
	many := make([]int32, 100_000)
	for i := range many {
		many[i] = int32(i)
	}
	a.code("a cancellation of nothing", move(), 85)
	for name, to := range map[string][]int32{"negative": {-1}, "unknown": {77}, "twice": {1, 1}, "the greatest": {math.MaxInt32}, "too many": many} {
		a.code("replicas "+name, move(to...), 39)
	}
	return "102, 42, 127; 85, 39"
}

func operatorCalls(a *attack) string {
	c := a.dial()
	alter := func(key, value string) int16 {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Version = 1
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, prey
		conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		conf.Name, conf.Value = key, &value
		res.Configs = append(res.Configs, conf)
		r.Resources = append(r.Resources, res)
		return c.ask(r).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
	}
	a.code("an unknown key", alter("no.such.config", "1"), 40)
	a.code("a path for a number", alter("retention.ms", "../../etc/passwd"), 40)
	a.code("a huge number", alter("segment.bytes", strings.Repeat("9", 30_000)), 40)
	a.code("what grows when it is quoted", alter("segment.bytes", strings.Repeat("\x01", 30_000)), 40)
	a.code("a path for a policy", alter("cleanup.policy", "/etc/passwd"), 40)
	trim := func(to int64) int16 {
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.Version, r.TimeoutMillis = 2, 10_000
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = prey
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Offset = to
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		return c.ask(r).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode
	}
	for _, to := range []int64{-2, math.MinInt64, math.MaxInt64} {
		a.code(fmt.Sprintf("delete to %d", to), trim(to), 1)
	}
	a.notServed(c, 29, 30, 31) // ACLs
	acl := kmsg.NewPtrCreateACLsRequest()
	acl.Version = 2
	for range 10_000 {
		acl.Creations = append(acl.Creations, kmsg.NewCreateACLsRequestCreation())
	}
	c.raw(c.encode(acl, "attacker"))
	c.closed()
	return "40, 1; ACLs are not served"
}
