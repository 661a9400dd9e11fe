package broker

import (
	"context"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
)

// deleteIDs is the first version of DeleteTopics that may name topics by id.
const deleteIDs = 6

func handleDeleteTopics(_ context.Context, c *Conn, h wire.RequestHeader, r wire.Request) Pending {
	req := r.(*wire.DeleteTopicsRequest)
	return func(ctx context.Context) Reply {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout(req.TimeoutMs))
		defer cancel()
		d := deleteTopics{srv: c.srv, im: c.srv.backend.image(), resp: &wire.DeleteTopicsResponse{}}
		d.run(ctx, deletions(h.Version, req))
		return Reply{Body: d.resp}
	}
}

// deletions are the topics of a request in the form of its last version.
func deletions(version int16, req *wire.DeleteTopicsRequest) []wire.DeleteTopicState {
	if version >= deleteIDs {
		return req.Topics
	}
	out := make([]wire.DeleteTopicState, len(req.TopicNames))
	for i := range req.TopicNames {
		out[i].Name = &req.TopicNames[i]
	}
	return out
}

// deleteTopics is one DeleteTopics request.
type deleteTopics struct {
	srv  *server
	im   *fsm.Image
	resp *wire.DeleteTopicsResponse
	ids  []fsm.TopicID
	at   []int // for each of ids, its index in the request
}

func (d *deleteTopics) run(ctx context.Context, topics []wire.DeleteTopicState) {
	d.resp.Responses = make([]wire.DeletableTopicResult, len(topics))
	seen := make(map[fsm.TopicID]bool, len(topics))
	for i := range topics {
		out := &d.resp.Responses[i]
		out.Name, out.TopicID = topics[i].Name, topics[i].TopicID
		t, err := d.find(&topics[i])
		if err == nil && seen[t.ID] {
			err = refused(wire.InvalidRequest, "the request has this topic more than once")
		}
		if err != nil {
			d.fail(out, err)
			continue
		}
		seen[t.ID] = true
		out.Name, out.TopicID = &t.Name, t.ID
		d.ids, d.at = append(d.ids, t.ID), append(d.at, i)
	}
	if len(d.ids) == 0 {
		return
	}
	results, err := d.srv.backend.admin.DeleteTopics(ctx, d.ids)
	for j, i := range d.at {
		switch {
		case err != nil:
			d.fail(&d.resp.Responses[i], err)
		case results[j].Err != wire.None:
			d.fail(&d.resp.Responses[i], outcomeError(results[j].Outcome, nil))
		}
	}
}

// find is the topic that a request names, by name or by id but not by both.
func (d *deleteTopics) find(in *wire.DeleteTopicState) (*fsm.Topic, error) {
	byID := in.TopicID != [16]byte{}
	switch {
	case byID == (in.Name != nil):
		return nil, refused(wire.InvalidRequest, "a topic must be named either by name or by id")
	case byID:
		return topicOf(d.im, deleteIDs, deleteIDs, "", in.TopicID)
	}
	return topicOf(d.im, 0, deleteIDs, *in.Name, [16]byte{})
}

func (d *deleteTopics) fail(out *wire.DeletableTopicResult, err error) {
	out.ErrorCode = d.srv.code(err)
	out.ErrorMessage = messageOf(err)
}
