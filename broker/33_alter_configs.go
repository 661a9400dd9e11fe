package broker

import (
	"context"
	"iter"
	"slices"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// alterWait bounds the wait for the controller: these requests name no time.
const alterWait = adminWaitLeast * 30

func handleAlterConfigs(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.AlterConfigsRequest)
	return func(ctx context.Context) Reply {
		resources := make([]alteredResource, len(req.Resources))
		for i, in := range req.Resources {
			resources[i] = alteredResource{kind: in.ResourceType, name: in.ResourceName, whole: true}
			for _, entry := range in.Configs {
				resources[i].add(entry.Name, wire.ConfigSet, entry.Value)
			}
		}
		return Reply{Body: &wire.AlterConfigsResponse{Responses: c.srv.alterConfigs(ctx, resources, req.ValidateOnly)}}
	}
}

// alteredResource is a change that a client wants, in whichever of the two requests it
// came.
type alteredResource struct {
	kind  int8
	name  string
	whole bool // ops are all configs that the resource is to have
	ops   []fsm.ConfigOp
	err   error // why it cannot be
}

// add takes one step from a request.
func (r *alteredResource) add(name string, op int8, value *string) {
	step := fsm.ConfigOp{Name: name}
	switch op {
	case wire.ConfigSet:
		step.Op = fsm.SetConfig
	case wire.ConfigDelete:
		step.Op = fsm.DeleteConfig
	case wire.ConfigAppend:
		step.Op = fsm.AppendConfig
	case wire.ConfigSubtract:
		step.Op = fsm.SubtractConfig
	default:
		r.err = refused(wire.InvalidRequest, "config %s: there is no operation %d", shorten(name), op)
	}
	if value != nil {
		step.Value = *value
	} else if op != wire.ConfigDelete && r.err == nil {
		r.err = refused(wire.InvalidRequest, "config %s has no value", shorten(name))
	}
	r.ops = append(r.ops, step)
}

// alterConfigs checks what can be told to be wrong from the requests alone; the rest is
// the controller's to decide.
func (s *server) alterConfigs(ctx context.Context, resources []alteredResource, validateOnly bool) []wire.AlterConfigsResourceResponse {
	ctx, cancel := context.WithTimeout(ctx, alterWait)
	defer cancel()
	im := s.imageWith(ctx, topicNames(resources))
	out := make([]wire.AlterConfigsResourceResponse, len(resources))
	fail := func(i int, err error) {
		out[i].ErrorCode, out[i].ErrorMessage = s.code(err), messageOf(err)
	}
	type key struct {
		kind int8
		name string
	}
	times := make(map[key]int, len(resources))
	for _, r := range resources {
		times[key{r.kind, r.name}]++
	}
	var wanted []controller.TopicAlteration
	var at []int // for each of wanted, its index in resources
	for i, r := range resources {
		out[i].ResourceType, out[i].ResourceName = r.kind, r.name
		if times[key{r.kind, r.name}] > 1 {
			r.err = refused(wire.InvalidRequest, "the request has this resource more than once")
		}
		t, err := alterable(im, r)
		switch {
		case err != nil:
			fail(i, err)
			continue
		case t == nil:
			continue
		}
		wanted = append(wanted, controller.TopicAlteration{ID: t.ID, Ops: r.ops, Whole: r.whole, ValidateOnly: validateOnly})
		at = append(at, i)
	}
	if len(wanted) == 0 {
		return out
	}
	results, err := s.backend.ops.cluster.AlterTopics(ctx, wanted)
	for j, i := range at {
		if err != nil {
			fail(i, err)
		} else if err := outcomeError(results[j].Outcome, nil); err != nil {
			fail(i, err)
		}
	}
	return out
}

// topicNames yields the topics that changes are about.
func topicNames(resources []alteredResource) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range resources {
			if r.kind == wire.ResourceTopic && !yield(r.name) {
				return
			}
		}
	}
}

// throttleRates are the configs of a node by which Kafka slows the copying of replicas down.
var throttleRates = [...]string{"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}

// alterable is the topic that a change is about, or why there is none. There is neither where
// configs of a node are to be deleted: a node has none but those that it was started with, so
// that they are gone already. Kafka's tools do that when replicas have moved.
func alterable(im *fsm.Image, r alteredResource) (*fsm.Topic, error) {
	sets := func(o fsm.ConfigOp) bool { return o.Op != fsm.DeleteConfig }
	switch {
	case r.err != nil:
		return nil, r.err
	case r.kind == wire.ResourceBroker && !slices.ContainsFunc(r.ops, sets):
		return nil, nil
	case r.kind == wire.ResourceBroker && slices.ContainsFunc(r.ops, func(o fsm.ConfigOp) bool { return sets(o) && slices.Contains(throttleRates[:], o.Name) }):
		return nil, refused(wire.InvalidConfig, "the copying of replicas is not throttled here: leave the throttle out, and move some partitions at a time")
	case r.kind == wire.ResourceBroker:
		return nil, refused(wire.InvalidRequest, "a node reads its configuration when it starts: change it there and restart the node")
	case r.kind != wire.ResourceTopic:
		return nil, refused(wire.InvalidRequest, "resource type %d has no configs here that could be changed: topics (2) have", r.kind)
	}
	return topicOf(im, 0, 1, r.name, [16]byte{})
}
