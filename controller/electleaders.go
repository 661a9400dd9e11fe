package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// ElectionKind says which leader an election that was asked for is to find.
type ElectionKind uint8

// The kinds of election.
const (
	// PreferredElection gives the lead to the first replica, if it is in sync.
	PreferredElection ElectionKind = 0
	// UncleanElection gives a partition without a leader one that may lack records.
	UncleanElection ElectionKind = 1
)

// ElectionResult is the outcome for one partition.
type ElectionResult struct {
	TP fsm.TopicPartition
	Outcome
}

// ElectLeaders has leaders elected by the controller and returns one result each, in order,
// once the local Image shows them.
func (n *Node) ElectLeaders(ctx context.Context, kind ElectionKind, tps []fsm.TopicPartition) ([]ElectionResult, error) {
	rep, err := n.callAndSee(ctx, &electRequest{kind: kind, tps: tps})
	if err != nil {
		return nil, err
	}
	return rep.(*electReply).results, nil
}

type electRequest struct {
	kind ElectionKind
	tps  []fsm.TopicPartition
}

func (*electRequest) op() op { return opElect }

// Asked again, it would say that no election is needed.
func (*electRequest) repeatable() bool { return false }
func (r *electRequest) code(c *codec.Coder) {
	c.Uint8((*uint8)(&r.kind))
	codec.ArrayOf(c, &r.tps, 20, codeTP)
}

type electReply struct {
	index   uint64
	results []ElectionResult
}

func (r *electReply) visibleFrom() uint64 { return r.index }

func (r *electReply) code(c *codec.Coder) {
	c.Uint64(&r.index)
	codec.ArrayOf(c, &r.results, 48, func(c *codec.Coder, e *ElectionResult) {
		codeTP(c, &e.TP)
		e.Outcome.code(c)
	})
}

func codeTP(c *codec.Coder, tp *fsm.TopicPartition) {
	c.UUID((*[16]byte)(&tp.Topic))
	c.Int32(&tp.Partition)
}

// electLeadersAsked decides and commits the elections that a client asked for. An unclean
// one is decided by what the live replicas say of their logs. The loop decides and commits, so
// that no incarnation which answered is replaced in between. Apply's guards catch what else
// changes meanwhile: such a partition is told to try again.
func (t *term) electLeadersAsked(ctx context.Context, r *electRequest) (reply, error) {
	asked := t.n.Image()
	var answers []elect.Answer
	if r.kind == UncleanElection {
		answers = t.askContenders(ctx, asked, r.tps)
	}
	rep := &electReply{results: make([]ElectionResult, len(r.tps))}
	err := t.do(ctx, func() error { return t.decideAsked(r, asked, answers, rep) })
	return rep, err
}

// decideAsked decides by the newest Image and commits.
func (t *term) decideAsked(r *electRequest, asked *fsm.Image, answers []elect.Answer, rep *electReply) error {
	im := t.n.Image()
	ends := elect.Ends(asked, im, answers)
	rep.index = im.Index()
	var items []fsm.LeaderChange
	var at []int // for each of items, its index in the request
	for i, tp := range r.tps {
		c, res := choose(im, r.kind, tp, ends[tp])
		rep.results[i] = res
		if res.Err == wire.None {
			items, at = append(items, c), append(at, i)
		}
	}
	var atRisk []elect.Recovered
	for _, entry := range packChanges(nil, items) {
		got, err := t.commit(entry...)
		if err != nil {
			return err
		}
		rep.index = got.index
		for j, result := range got.results {
			for n, k := range result.Skipped {
				rep.results[at[k]].Outcome = refuse(wire.LeaderNotAvailable, "The partition changed while its leader was being elected (%v); try again.", result.Why[n])
			}
			for k, c := range entry[j].(fsm.ChangeLeaders).Items {
				if c.Recovering && !slices.Contains(result.Skipped, k) {
					atRisk = append(atRisk, elect.Recovered{Change: c, Ends: ends[c.TP]})
				}
			}
			at = at[len(entry[j].(fsm.ChangeLeaders).Items):]
		}
	}
	t.log.Info("leaders elected on request", "partitions", len(items), "unclean", r.kind == UncleanElection)
	t.reportRecovered("leaders were chosen on request by the ends of the logs that could be asked (broker:last epoch:end): acknowledged records may be lost", atRisk)
	return nil
}

// askContenders asks all live replicas of the partitions that need an unclean election where
// their logs end. Who does not answer in time is left out.
func (t *term) askContenders(ctx context.Context, im *fsm.Image, tps []fsm.TopicPartition) []elect.Answer {
	wanted := map[fsm.BrokerID][]fsm.TopicPartition{}
	for _, tp := range tps {
		if p, ok := im.Partition(tp); ok {
			for _, id := range elect.Contenders(im, tp, p) {
				wanted[id] = append(wanted[id], tp)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var (
		all sync.WaitGroup
		mu  sync.Mutex // guards answers
		out []elect.Answer
	)
	for id, list := range wanted {
		b, _ := im.Broker(id)
		all.Go(func() {
			for q := range slices.Chunk(list, elect.QuestionSize) {
				got := t.n.answered(ctx, elect.Question{Broker: id, Epoch: b.Epoch, Index: im.Index(), Partitions: q}, t.log)
				mu.Lock()
				out = append(out, got...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return out
}

// answered asks until there is an answer or ctx ends: a broker may have yet to act on the
// Image that it is asked about.
func (n *Node) answered(ctx context.Context, q elect.Question, log hclog.Logger) []elect.Answer {
	for {
		answers, err := n.question(ctx, q)
		if err == nil {
			return answers
		}
		select {
		case <-ctx.Done():
			log.Warn("a broker did not say where its logs end", "broker", q.Broker, "partitions", len(q.Partitions), "error", err)
			return nil
		case <-time.After(questionPause):
		}
	}
}

// choose decides one election.
func choose(im *fsm.Image, kind ElectionKind, tp fsm.TopicPartition, ends []elect.LogEnd) (fsm.LeaderChange, ElectionResult) {
	res := ElectionResult{TP: tp}
	p, ok := im.Partition(tp)
	if !ok {
		res.Outcome = refuse(wire.UnknownTopicOrPartition, "The partition does not exist.")
		return fsm.LeaderChange{}, res
	}
	if kind == UncleanElection {
		c, choice := elect.Unclean(im, tp, p, ends)
		switch choice {
		case elect.NotNeeded:
			res.Outcome = refuse(wire.ElectionNotNeeded, "The partition has a leader.")
		case elect.NobodyFit:
			res.Outcome = refuse(wire.EligibleLeadersNotAvailable, "No replica of the partition is on a node that is up and says where its log ends.")
		}
		return c, res
	}
	c, choice := elect.Preferred(im, tp, p)
	switch choice {
	case elect.NotNeeded:
		res.Outcome = refuse(wire.ElectionNotNeeded, "The preferred leader leads the partition.")
	case elect.NobodyFit:
		res.Outcome = refuse(wire.PreferredLeaderNotAvailable, "The preferred leader, broker %d, is not in sync or not up.", p.Replicas[0])
	}
	return c, res
}
