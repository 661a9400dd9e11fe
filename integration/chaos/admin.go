package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/chaos/host"
)

// askWait bounds a question about the cluster's state.
const askWait = 4 * time.Second

// metadata asks for brokers, controller and all partitions of the run's topics.
func (r *Run) metadata(ctx context.Context) (*kmsg.MetadataResponse, error) {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range r.topics {
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = kmsg.StringPtr(t.Name)
		req.Topics = append(req.Topics, mt)
	}
	return req.RequestWith(wait, r.crew.Client())
}

// victims finds out whom a target names now. Where the cluster does not answer, chance decides.
func (r *Run) victims(ctx context.Context, t Target) []*host.Host {
	alive := r.alive()
	n := len(r.cluster.Hosts)
	switch t {
	case Nobody:
		return nil
	case All:
		return alive
	case Minority, Majority:
		r.rnd.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
		few := max(1, (n-1)/2)
		if t == Majority {
			few = n/2 + 1
		}
		return alive[:min(few, len(alive))]
	case Coordinator:
		if h := r.coordinator(ctx); h != nil {
			return []*host.Host{h}
		}
	default:
		if h := r.inMetadata(ctx, t); h != nil {
			return []*host.Host{h}
		}
	}
	return alive[r.rnd.IntN(len(alive)):][:1]
}

func (r *Run) inMetadata(ctx context.Context, t Target) *host.Host {
	m, err := r.metadata(ctx)
	if err != nil {
		return nil
	}
	if t == Controller {
		return r.cluster.Host(m.ControllerID)
	}
	topic := m.Topics[r.rnd.IntN(len(m.Topics))]
	if len(topic.Partitions) == 0 {
		return nil
	}
	p := topic.Partitions[r.rnd.IntN(len(topic.Partitions))]
	if t == Leader {
		return r.cluster.Host(p.Leader)
	}
	others := slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return id == p.Leader })
	if len(others) == 0 {
		return nil
	}
	return r.cluster.Host(others[r.rnd.IntN(len(others))])
}

func (r *Run) coordinator(ctx context.Context) *host.Host {
	if len(r.groups) == 0 {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	g := r.groups[r.rnd.IntN(len(r.groups))].Group
	req.CoordinatorKeys = []string{g}
	answer, err := req.RequestWith(wait, r.crew.Client())
	if err != nil || len(answer.Coordinators) == 0 {
		return nil
	}
	return r.cluster.Host(answer.Coordinators[0].NodeID)
}

// whole returns nil when every host that may run is a broker, every partition has a leader,
// as many replicas as it was made with, all of them there in sync, every such host votes, and
// nothing is on the move.
func (r *Run) whole(ctx context.Context) error {
	m, err := r.metadata(ctx)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		if len(t.Partitions) == 0 {
			return fmt.Errorf("topic %s has no partitions (error %d)", *t.Topic, t.ErrorCode)
		}
		for _, p := range t.Partitions {
			want := slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { h := r.cluster.Host(id); return h != nil && h.Lost() })
			if p.Leader < 0 || len(p.ISR) < len(want) {
				return fmt.Errorf("%s-%d has leader %d and %v of %v in sync", *t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
			}
			if n := replicas(r.options.Nodes); len(p.Replicas) < n {
				r.regrow(ctx)
				return fmt.Errorf("%s-%d is on %v, and was to have %d replicas", *t.Topic, p.Partition, p.Replicas, n)
			}
		}
	}
	if err := r.seated(ctx); err != nil {
		return err
	}
	return r.still(ctx)
}

// awaitWhole waits until the cluster is whole.
func (r *Run) awaitWhole(ctx context.Context, patience time.Duration) error {
	end := time.Now().Add(patience)
	for {
		err := r.whole(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the cluster has not become whole in %s: %w", patience, err)
		}
		if e := r.sleep(ctx, 200*time.Millisecond); e != nil {
			return e
		}
	}
}

// insist repeats a question or change until it succeeds, for as long as the run is patient.
func (r *Run) insist(ctx context.Context, what string, call func(context.Context) error) error {
	limit, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return r.crew.Insist(limit, what, call)
}

// elect restarts a node in order, which gives its leaderships away, and then gives them back
// by an election of the preferred leaders.
func elect(ctx context.Context, r *Run, _ []*host.Host) (func(context.Context) error, error) {
	heal := restarting(r.cluster.Hosts)
	alive := r.alive()
	if len(alive) == 0 {
		return heal, nil
	}
	if err := r.cycle(ctx, alive[r.rnd.IntN(len(alive))]); err != nil {
		return heal, err
	}
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	moved, err := r.crew.Admin().ElectLeaders(wait, kadm.ElectPreferredReplica, nil)
	if err != nil { // as from a cluster that is without its controller just now; so be it
		r.note("the preferred replicas were not elected: %v", err)
		return heal, nil
	}
	back := 0
	for _, partitions := range moved {
		for _, p := range partitions {
			if p.Err == nil {
				back++
			}
		}
	}
	r.note("%d leaderships went back to the preferred replicas", back)
	return heal, nil
}

// churn deletes and makes again the topic that is there for it, with the victims cut off
// from their peers: they must not bring the old records back.
func churn(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	if r.churning == nil {
		return func(context.Context) error { return nil }, nil
	}
	r.churning.end()
	heal, err := cutPeers(ctx, r, victims)
	if err != nil {
		return heal, err
	}
	limit, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.crew.DeleteTopic(limit, r.churning.topic); err != nil {
		return heal, err
	}
	return heal, r.churning.begin(limit)
}
