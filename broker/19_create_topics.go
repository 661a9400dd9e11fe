package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

const (
	// adminWaitLeast is for clients that give no time at all.
	adminWaitLeast = time.Second
	// adminWaitMax bounds how long a connection waits for the controller.
	adminWaitMax = 5 * time.Minute
)

// adminTimeout is how long to wait for the controller on behalf of a client.
func adminTimeout(ms int32) time.Duration {
	if ms <= 0 {
		return adminWaitLeast
	}
	return min(time.Duration(ms)*time.Millisecond, adminWaitMax)
}

func handleCreateTopics(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.CreateTopicsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		create := createTopics{srv: c.srv, req: req, resp: &wire.CreateTopicsResponse{}}
		create.run(ctx)
		return Reply{Body: create.resp}
	}
}

// createTopics is one CreateTopics request. What can be told to be wrong from the
// request alone is refused here; the rest is the controller's to decide.
type createTopics struct {
	srv    *server
	req    *wire.CreateTopicsRequest
	resp   *wire.CreateTopicsResponse
	wanted []controller.NewTopic
	at     []int // for each of wanted, its index in the request
}

func (t *createTopics) run(ctx context.Context) {
	t.resp.Topics = make([]wire.CreatableTopicResult, len(t.req.Topics))
	times := make(map[string]int, len(t.req.Topics))
	for i := range t.req.Topics {
		times[t.req.Topics[i].Name]++
	}
	for i := range t.req.Topics {
		in, out := &t.req.Topics[i], &t.resp.Topics[i]
		*out = wire.DefaultCreatableTopicResult()
		out.Name = in.Name
		topic, err := newTopic(in, t.req.ValidateOnly)
		if times[in.Name] > 1 {
			err = refused(wire.InvalidRequest, "the request has this topic more than once")
		}
		if err != nil {
			t.fail(out, err)
			continue
		}
		t.wanted, t.at = append(t.wanted, topic), append(t.at, i)
	}
	if len(t.wanted) == 0 {
		return
	}
	results, err := t.srv.backend.admin.CreateTopics(ctx, t.wanted)
	for j, i := range t.at {
		out := &t.resp.Topics[i]
		switch {
		case err != nil:
			t.fail(out, err)
		case results[j].Err != wire.None:
			t.fail(out, outcomeError(results[j].Outcome, nil))
		default:
			t.fill(out, &t.wanted[j], &results[j])
		}
	}
}

// fill writes a topic that was created, or that could be.
func (t *createTopics) fill(out *wire.CreatableTopicResult, wanted *controller.NewTopic, got *controller.TopicResult) {
	if !t.req.ValidateOnly {
		out.TopicID = got.ID
	}
	out.NumPartitions, out.ReplicationFactor = got.Partitions, got.RF
	out.Configs = effectiveConfigs(wanted.Configs, got.RF, t.srv.backend.ops.config)
}

func (t *createTopics) fail(out *wire.CreatableTopicResult, err error) {
	out.ErrorCode = t.srv.code(err)
	out.ErrorMessage = messageOf(err)
}

// newTopic is a topic as the controller wants it, or what is wrong with it.
func newTopic(in *wire.CreatableTopic, validateOnly bool) (controller.NewTopic, error) {
	t := controller.NewTopic{
		Name: in.Name, Partitions: in.NumPartitions, RF: in.ReplicationFactor, ValidateOnly: validateOnly,
	}
	for _, c := range in.Configs {
		if c.Value == nil {
			return t, refused(wire.InvalidConfig, "topic config %s has no value", shorten(c.Name))
		}
		t.Configs = append(t.Configs, [2]string{c.Name, *c.Value})
	}
	if len(in.Assignments) == 0 {
		return t, nil
	}
	if in.NumPartitions != -1 || in.ReplicationFactor != -1 {
		return t, refused(wire.InvalidRequest, "with an assignment, the number of partitions and the replication factor must be -1")
	}
	var err error
	t.Assignment, err = assignment(in.Assignments)
	return t, err
}

// assignment orders the placements of a request by partition.
func assignment(in []wire.CreatableReplicaAssignment) ([][]fsm.BrokerID, error) {
	out := make([][]fsm.BrokerID, len(in))
	for _, a := range in {
		if a.PartitionIndex < 0 || int(a.PartitionIndex) >= len(in) {
			return nil, refused(wire.InvalidReplicaAssignment, "partitions must be numbered from 0 to %d, not %d", len(in)-1, a.PartitionIndex)
		}
		if out[a.PartitionIndex] != nil {
			return nil, refused(wire.InvalidReplicaAssignment, "partition %d is assigned more than once", a.PartitionIndex)
		}
		ids := make([]fsm.BrokerID, len(a.BrokerIDs))
		for i, id := range a.BrokerIDs {
			ids[i] = fsm.BrokerID(id)
		}
		out[a.PartitionIndex] = ids
	}
	return out, nil
}

// effectiveConfigs are all configs of a topic for which own were given.
func effectiveConfigs(own [][2]string, rf int16, node Config) []wire.CreatableTopicConfigs {
	given := make(map[string]string, len(own))
	for _, kv := range own {
		given[kv[0]] = kv[1]
	}
	entries := topicEntries(given, make([]fsm.BrokerID, max(rf, 1)), node)
	out := make([]wire.CreatableTopicConfigs, len(entries))
	for i, e := range entries {
		out[i] = wire.CreatableTopicConfigs{Name: e.name, Value: e.sources[0].value, ConfigSource: e.sources[0].source}
	}
	return out
}

// refusal is an error whose code is known and whose text is for the client.
type refusal struct {
	code wire.Code
	msg  string
}

func refused(code wire.Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

func (r *refusal) Error() string { return r.msg }

// Unwrap makes codeOf find the code.
func (r *refusal) Unwrap() error { return r.code }

// shorten keeps what a client sent from filling an answer.
func shorten(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
