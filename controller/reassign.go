package controller

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire"
	"github.com/weirmq/weir/wire/codec"
)

// Move says where the replicas of one partition are to be.
type Move struct {
	TP fsm.TopicPartition
	// To is the replicas that there are to be, the preferred leader first.
	To []fsm.BrokerID
	// Cancel ends a move that is under way: the replicas are to be what they were.
	Cancel bool
}

// Reassign has moves of replicas begun or cancelled by the controller and returns one result
// each, in order, once the local Image shows them. A move that has begun ends by itself.
// Unless resize is set, none may change how many replicas there are.
func (n *Node) Reassign(ctx context.Context, moves []Move, resize bool) ([]Outcome, error) {
	rep, err := n.callAndSee(ctx, &reassignRequest{moves: moves, resize: resize})
	if err != nil {
		return nil, err
	}
	return rep.(*reassignReply).results, nil
}

type reassignRequest struct {
	moves  []Move
	resize bool
}

func (*reassignRequest) op() op { return opReassign }

// A move to where the replicas are going changes nothing; cancelled twice, it would not be
// under way any more.
func (r *reassignRequest) repeatable() bool {
	return !slices.ContainsFunc(r.moves, func(m Move) bool { return m.Cancel })
}

func (r *reassignRequest) code(c *codec.Coder) {
	codec.ArrayOf(c, &r.moves, 56, func(c *codec.Coder, m *Move) {
		codeTP(c, &m.TP)
		codec.ArrayOf(c, &m.To, 4, codeBroker)
		c.Bool(&m.Cancel)
	})
	c.Bool(&r.resize)
}

type reassignReply struct {
	index   uint64
	results []Outcome
}

func (r *reassignReply) visibleFrom() uint64 { return r.index }

func (r *reassignReply) code(c *codec.Coder) {
	c.Uint64(&r.index)
	codec.ArrayOf(c, &r.results, 24, func(c *codec.Coder, o *Outcome) { o.code(c) })
}

// movesPerTurn is how many moves the loop decides before it looks at heartbeats again.
const movesPerTurn = 1024

// reassign decides and commits moves, some at a time. Apply's guards catch what changes
// meanwhile: such a partition is decided anew.
func (t *term) reassign(ctx context.Context, r *reassignRequest) (reply, error) {
	rep := &reassignReply{index: t.n.Image().Index(), results: make([]Outcome, len(r.moves))}
	for from := 0; from < len(r.moves); from += movesPerTurn {
		todo := make([]int, 0, movesPerTurn)
		for i := from; i < min(from+movesPerTurn, len(r.moves)); i++ {
			todo = append(todo, i)
		}
		for try := 0; try < alterTries && len(todo) > 0; try++ {
			err := t.do(ctx, func() (err error) {
				todo, err = t.beginMoves(r, todo, rep)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		for _, i := range todo {
			rep.results[i] = refuse(wire.RequestTimedOut, "The partition is changing all the time; try again.")
		}
	}
	return rep, nil
}

// beginMoves decides the moves numbered todo by the newest Image and commits them. It returns
// those whose partitions changed meanwhile.
func (t *term) beginMoves(r *reassignRequest, todo []int, rep *reassignReply) (again []int, err error) {
	im := t.n.Image()
	var items []fsm.ReplicaChange
	var at []int // for each of items, its number in the request
	for _, i := range todo {
		c, res := planMove(im, r.moves[i], r.resize)
		rep.results[i] = res
		if res.Err == wire.None {
			items, at = append(items, c), append(at, i)
		}
	}
	index, skipped, err := t.changeReplicas(items)
	if err != nil {
		return nil, err
	}
	rep.index = max(rep.index, index)
	for _, s := range skipped {
		again = append(again, at[s])
	}
	if n := len(items) - len(skipped); n > 0 {
		t.log.Info("replicas are reassigned on request", "partitions", n)
	}
	return again, nil
}

// changeReplicas commits changes of replicas in entries of bounded size. It returns the index of
// the last and which items were skipped.
func (t *term) changeReplicas(items []fsm.ReplicaChange) (index uint64, skipped []int, err error) {
	first := 0
	for _, c := range packReplicaChanges(items) {
		got, err := t.commit(c)
		if err != nil {
			return index, nil, err
		}
		index = got.index
		for _, s := range got.results[0].Skipped {
			skipped = append(skipped, first+s)
		}
		first += len(c.Items)
	}
	return index, skipped, nil
}

// packReplicaChanges splits items into commands, each of which fits an entry.
func packReplicaChanges(items []fsm.ReplicaChange) []fsm.ChangeReplicas {
	var out []fsm.ChangeReplicas
	first, size := 0, 0
	for i := range items {
		s := len(fsm.EncodeCommand(nil, fsm.ChangeReplicas{Items: items[i : i+1]}))
		if i > first && size+s > entrySizeMax {
			out = append(out, fsm.ChangeReplicas{Items: items[first:i]})
			first, size = i, 0
		}
		size += s
	}
	if first < len(items) {
		out = append(out, fsm.ChangeReplicas{Items: items[first:]})
	}
	return out
}

// planMove decides one move by im.
func planMove(im *fsm.Image, m Move, resize bool) (fsm.ReplicaChange, Outcome) {
	var target []fsm.BrokerID // nil cancels
	if !m.Cancel {
		target = append([]fsm.BrokerID{}, m.To...)
		if p, ok := im.Partition(m.TP); ok && !resize {
			if err := elect.CheckFactor(p, target); err != nil {
				return fsm.ReplicaChange{}, moveRefused(err)
			}
		}
	}
	c, err := elect.Reassign(im, m.TP, target)
	if err != nil {
		return fsm.ReplicaChange{}, moveRefused(err)
	}
	return c, Outcome{}
}

// moveRefused says why a move can not begin, or end.
func moveRefused(err error) Outcome {
	var factor *elect.FactorError
	var target *elect.InvalidTargetError
	switch {
	case errors.Is(err, fsm.UnknownTopic), errors.Is(err, fsm.UnknownPartition):
		return refuse(wire.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	case errors.As(err, &factor):
		return refuse(wire.InvalidReplicationFactor, "The replication factor is changed from %d to %d.", factor.Is, factor.Wanted)
	case errors.As(err, &target):
		return refuse(wire.InvalidReplicaAssignment, "The assignment %v is not possible: %s.", target.Target, target.Reason)
	case errors.Is(err, elect.ErrNoReassignment):
		return refuse(wire.NoReassignmentInProgress, "No reassignment of the partition is in progress.")
	case errors.Is(err, fsm.ReplicaNeeded):
		return refuse(wire.ReassignmentInProgress, "A replica that would leave is in sync and may hold what the disks of the others lack yet; try again in some seconds.")
	}
	return refuse(wire.InvalidReplicaAssignment, "The assignment is not possible now: %v.", err)
}

// finishMoves ends the moves whose new replicas are in sync, as far as something has changed
// since it last looked: the partition, or a broker. A new term looks at all that is on the move.
func (t *term) finishMoves() error {
	im, before := t.n.Image(), t.moved
	t.moved = im
	var items []fsm.ReplicaChange
	for tp := range movesToJudge(before, im) {
		if c, ok := elect.FinishReassignment(im, tp); ok {
			items = append(items, c)
		}
	}
	_, skipped, err := t.changeReplicas(items)
	if n := len(items) - len(skipped); n > 0 && err == nil {
		t.log.Info("reassignments are complete", "partitions", n)
	}
	return err
}

// movesToJudge yields the partitions on the move that may be complete in im, and were not in
// before; all of them without a before. Its cost follows from what has changed.
func movesToJudge(before, im *fsm.Image) iter.Seq[fsm.TopicPartition] {
	return func(yield func(fsm.TopicPartition) bool) {
		if !anyMoves(im) {
			return
		}
		var d fsm.Delta
		if before != nil {
			d = fsm.Diff(before, im)
		}
		if before == nil || len(d.Brokers) > 0 {
			for tp := range im.Reassigning() {
				if !yield(tp) {
					return
				}
			}
			return
		}
		for _, p := range d.Partitions {
			if p.New != nil && p.New.Reassigning() && !yield(p.TP) {
				return
			}
		}
	}
}

func anyMoves(im *fsm.Image) bool {
	for range im.Reassigning() {
		return true
	}
	return false
}
