package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/chaos/host"
)

// moveVoteWait is how long a vote that moves is waited for: a node has to keep up for ten
// seconds before it gets one, counted anew with each controller.
const moveVoteWait = 20 * time.Second

// members takes the vote of one victim after the other. Of several the one before may have its
// own back first, and so the vote moves from voter to nonvoter. A victim counts as away, though
// it goes on to serve: with a majority of all nodes there is one of those that vote.
//
// Every host votes from the start, and does again when the fault has ended. What is refused,
// since nodes are down, or has an outcome that nobody knows is no problem of the run, as long
// as the votes come back.
func members(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	var before *host.Host
	for _, h := range victims {
		if before != nil && r.rnd.IntN(2) == 0 {
			r.tell(r.seat(ctx, int32(before.ID), moveVoteWait), "node %d votes again", before.ID)
		}
		r.tell(r.unseat(ctx, int32(h.ID)), "node %d votes no more", h.ID)
		before = h
	}
	return func(ctx context.Context) error { return r.insist(ctx, "await the votes of all", r.seated) }, nil
}

// tell notes what was done, or why it was not.
func (r *Run) tell(err error, format string, args ...any) {
	if err != nil {
		format, args = "%v", []any{err}
	}
	r.note(format, args...)
}

// seat gives a node a vote.
func (r *Run) seat(ctx context.Context, id int32, patience time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, patience+askWait)
	defer cancel()
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.TimeoutMillis = id, int32(patience.Milliseconds())
	resp, err := req.RequestWith(wait, r.crew.Client())
	if err == nil {
		err = said(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil && !errors.Is(err, kerr.DuplicateVoter) {
		return fmt.Errorf("give node %d a vote: %w", id, err)
	}
	return nil
}

// unseat takes a node's vote. It tries for a while: a controller that is to lose its own hands over
// first, and what was refused may be allowed a moment later.
func (r *Run) unseat(ctx context.Context, id int32) error {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	return r.crew.Insist(wait, fmt.Sprintf("take the vote of node %d", id), func(ctx context.Context) error {
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID = id
		resp, err := req.RequestWith(ctx, r.crew.Client())
		if err == nil {
			err = said(resp.ErrorCode, resp.ErrorMessage)
		}
		if errors.Is(err, kerr.VoterNotFound) {
			return nil // an earlier try whose answer was lost
		}
		return err
	})
}

// said is the error of an answer, with its words.
func said(code int16, words *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && words != nil {
		return fmt.Errorf("%w: %s", err, *words)
	}
	return err
}

// quorum asks who votes on metadata, and who follows it without a vote.
func (r *Run) quorum(ctx context.Context) (voters, others []int32, _ error) {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(wait, r.crew.Client())
	if err == nil {
		err = said(resp.ErrorCode, resp.ErrorMessage)
	}
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errors.New("the answer leaves the quorum out")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask who votes: %w", err)
	}
	p := resp.Topics[0].Partitions[0]
	for _, v := range p.CurrentVoters {
		voters = append(voters, v.ReplicaID)
	}
	for _, o := range p.Observers {
		others = append(others, o.ReplicaID)
	}
	return voters, others, nil
}

// seated gives every host that may run its vote back, and returns nil when each has one.
func (r *Run) seated(ctx context.Context) error {
	voters, _, err := r.quorum(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, h := range r.alive() {
		if !slices.Contains(voters, int32(h.ID)) {
			failed = errors.Join(failed, r.seat(ctx, int32(h.ID), askWait))
		}
	}
	return failed
}

// joinWait is how long a node that joins is waited for.
const joinWait = 15 * time.Second

// join has the spare host join, and gives it a vote. When the fault ends it loses the vote, leaves,
// and its process ends; next time it is another node. It gets no replica: those of topics that
// are there stay where they are, and reassign knows the other hosts only.
func join(ctx context.Context, r *Run, _ []*host.Host) (func(context.Context) error, error) {
	spare, err := r.cluster.Spare()
	if err != nil {
		return nil, err
	}
	if err := spare.Start(); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	var id int32
	err = r.crew.Insist(wait, "await that a node joins", func(ctx context.Context) error {
		voters, others, err := r.quorum(ctx)
		if err != nil {
			return err
		}
		guests := r.guests(voters, others)
		if len(guests) == 0 {
			return errors.New("the quorum knows nobody new")
		}
		id = guests[0]
		return nil
	})
	if err == nil {
		err = r.seat(ctx, id, moveVoteWait)
	}
	r.tell(err, "node %d has joined and votes", id)
	return func(ctx context.Context) error { return r.insist(ctx, "await that a node leaves", r.departed) }, nil
}

// guests are the nodes that are none of the hosts which the cluster was made of.
func (r *Run) guests(voters, others []int32) []int32 {
	return slices.DeleteFunc(slices.Concat(voters, others), func(id int32) bool { return r.cluster.Host(id) != nil })
}

// departed has guests leave for good, and returns nil when there are none and the process of the
// spare host, which is one of them as soon as it has joined, has ended.
func (r *Run) departed(ctx context.Context) error {
	voters, others, err := r.quorum(ctx)
	if err != nil {
		return err
	}
	for _, id := range r.guests(voters, others) {
		if slices.Contains(voters, id) {
			if err := r.unseat(ctx, id); err != nil {
				return err
			}
		}
		if err := r.expel(ctx, id); err != nil {
			return err
		}
		r.note("node %d has left", id)
	}
	spare, err := r.cluster.Spare()
	if err == nil && spare.PID() != 0 {
		err = errors.New("its process runs")
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(spare.Data())
}

// expel removes a node from the cluster.
func (r *Run) expel(ctx context.Context, id int32) error {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(wait, r.crew.Client())
	if err == nil {
		err = said(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil && !errors.Is(err, kerr.BrokerIDNotRegistered) {
		return fmt.Errorf("remove node %d: %w", id, err)
	}
	return nil
}
