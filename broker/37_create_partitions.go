package broker

import (
	"context"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

func handleCreatePartitions(_ context.Context, c *Conn, _ wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.CreatePartitionsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		p := createPartitions{srv: c.srv, req: req, resp: &wire.CreatePartitionsResponse{}}
		p.run(ctx)
		return Reply{Body: p.resp}
	}
}

// createPartitions is one CreatePartitions request.
type createPartitions struct {
	srv    *server
	req    *wire.CreatePartitionsRequest
	resp   *wire.CreatePartitionsResponse
	wanted []controller.MorePartitions
	at     []int // for each of wanted, its index in the request
}

func (p *createPartitions) run(ctx context.Context) {
	im := p.srv.imageWith(ctx, func(yield func(string) bool) {
		for i := range p.req.Topics {
			if !yield(p.req.Topics[i].Name) {
				return
			}
		}
	})
	p.resp.Results = make([]wire.CreatePartitionsTopicResult, len(p.req.Topics))
	times := make(map[string]int, len(p.req.Topics))
	for i := range p.req.Topics {
		times[p.req.Topics[i].Name]++
	}
	for i := range p.req.Topics {
		in := &p.req.Topics[i]
		p.resp.Results[i].Name = in.Name
		t, err := topicOf(im, 0, 1, in.Name, [16]byte{})
		switch {
		case times[in.Name] > 1:
			p.fail(i, refused(wire.InvalidRequest, "the request has this topic more than once"))
		case err != nil:
			p.fail(i, err)
		default:
			p.wanted, p.at = append(p.wanted, morePartitions(t, in, p.req.ValidateOnly)), append(p.at, i)
		}
	}
	if len(p.wanted) == 0 {
		return
	}
	results, err := p.srv.backend.ops.cluster.AddPartitions(ctx, p.wanted)
	for j, i := range p.at {
		if err != nil {
			p.fail(i, err)
		} else if err := outcomeError(results[j].Outcome, nil); err != nil {
			p.fail(i, err)
		}
	}
}

func (p *createPartitions) fail(i int, err error) {
	p.resp.Results[i].ErrorCode = p.srv.code(err)
	p.resp.Results[i].ErrorMessage = messageOf(err)
}

// morePartitions is what a client wants, as the controller takes it.
func morePartitions(t *fsm.Topic, in *wire.CreatePartitionsTopic, validateOnly bool) controller.MorePartitions {
	m := controller.MorePartitions{ID: t.ID, Count: in.Count, ValidateOnly: validateOnly}
	if in.Assignments == nil {
		return m
	}
	m.Assignment = make([][]fsm.BrokerID, len(in.Assignments))
	for i, a := range in.Assignments {
		for _, id := range a.BrokerIDs {
			m.Assignment[i] = append(m.Assignment[i], fsm.BrokerID(id))
		}
	}
	return m
}
