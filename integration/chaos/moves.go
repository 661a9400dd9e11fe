package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/chaos/host"
)

// reassign moves about half of the partitions to other nodes. Where there are no more nodes
// than replicas each of them loses one, and has it again afterwards. It returns when that
// has begun: whoever needs the cluster whole waits for the end of all moves (whole).
func reassign(ctx context.Context, r *Run, _ []*host.Host) (func(context.Context) error, error) {
	_, moved := r.shuffle(ctx, func() bool { return r.rnd.IntN(2) == 0 })
	r.note("%d partitions begin to move", moved)
	return func(ctx context.Context) error { r.regrow(ctx); return nil }, nil
}

// ids are the nodes that may run.
func (r *Run) ids() []int32 {
	var out []int32
	for _, h := range r.alive() {
		out = append(out, int32(h.ID))
	}
	return out
}

// shuffle asks for other replicas of the partitions that choose picks, and returns what it
// asked for and how many were taken. What does not begin, as in a cluster that is without its
// controller just now, is no problem of the run.
func (r *Run) shuffle(ctx context.Context, choose func() bool) (kadm.AlterPartitionAssignmentsReq, int) {
	asked := kadm.AlterPartitionAssignmentsReq{}
	ids := r.ids()
	n := min(replicas(r.options.Nodes), max(1, len(ids)-1))
	m, err := r.metadata(ctx)
	if err != nil {
		r.note("nothing moves: %v", err)
		return asked, 0
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			r.rnd.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			if choose() {
				asked.Assign(*t.Topic, p.Partition, slices.Clone(ids[:n]))
			}
		}
	}
	return asked, r.assign(ctx, asked)
}

// assign asks for replicas and returns how many partitions took it.
func (r *Run) assign(ctx context.Context, asked kadm.AlterPartitionAssignmentsReq) int {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	got, err := r.crew.Admin().AlterPartitionAssignments(wait, asked)
	if err != nil {
		r.note("nothing moves: %v", err)
		return 0
	}
	taken := 0
	got.Each(func(a kadm.AlterPartitionAssignmentsResponse) {
		if a.Err == nil {
			taken++
		}
	})
	return taken
}

// regrow has partitions that lack replicas get them, as far as there is a controller to ask.
func (r *Run) regrow(ctx context.Context) {
	asked := kadm.AlterPartitionAssignmentsReq{}
	m, err := r.metadata(ctx)
	if err != nil {
		return
	}
	ids, n := r.ids(), replicas(r.options.Nodes)
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			to := slices.Clone(p.Replicas)
			for _, id := range ids {
				if len(to) < n && !slices.Contains(to, id) {
					to = append(to, id)
				}
			}
			if len(to) > len(p.Replicas) {
				asked.Assign(*t.Topic, p.Partition, to)
			}
		}
	}
	if len(asked) > 0 {
		r.assign(ctx, asked)
	}
}

// ongoing lists what is on the move.
func (r *Run) ongoing(ctx context.Context) ([]kmsg.ListPartitionReassignmentsResponseTopic, error) {
	wait, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	resp, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(wait, r.crew.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("ask what is on the move: %w", err)
	}
	return resp.Topics, nil
}

// still returns nil when nothing is on the move.
func (r *Run) still(ctx context.Context) error {
	moves, err := r.ongoing(ctx)
	if err != nil || len(moves) == 0 {
		return err
	}
	p := moves[0].Partitions[0]
	return fmt.Errorf("%s-%d is on the move: replicas %v, of which %v come and %v go", moves[0].Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
}

const moveRounds = 5

// moveUnderFire moves everything while a leader can hardly send, so that copies take a while,
// and kills a node that gets replicas, stops the leader in order, or cancels all, in the
// middle. Afterwards every partition must be where it was asked for last.
func moveUnderFire(ctx context.Context, r *Run) error {
	for range moveRounds {
		for _, act := range []func(context.Context, *Run, *host.Host) error{killAdded, stopLeader, cancelMoves} {
			l, err := r.leader(ctx)
			if err != nil {
				return err
			}
			var asked kadm.AlterPartitionAssignmentsReq
			err = r.under(ctx, "slow", []*host.Host{l}, func() error {
				var moved int
				asked, moved = r.shuffle(ctx, func() bool { return true })
				r.note("%d partitions begin to move", moved)
				return errors.Join(r.sleep(ctx, time.Second), act(ctx, r, l))
			})
			if err != nil {
				return err
			}
			if err := r.awaitPlaced(ctx, asked); err != nil {
				return err
			}
		}
	}
	return nil
}

// killAdded kills a node that gets a replica, if anything is still on the move.
func killAdded(ctx context.Context, r *Run, _ *host.Host) error {
	moves, err := r.ongoing(ctx)
	if err != nil { // the controller may be the node that can hardly send
		r.note("nobody is killed: %v", err)
		return nil
	}
	for _, t := range moves {
		for _, p := range t.Partitions {
			if len(p.AddingReplicas) > 0 {
				return r.under(ctx, "kill", []*host.Host{r.cluster.Host(p.AddingReplicas[0])}, r.hold(ctx, 4*time.Second))
			}
		}
	}
	r.note("nothing is on the move any more")
	return nil
}

// stopLeader stops the leader that can hardly send.
func stopLeader(ctx context.Context, r *Run, l *host.Host) error {
	return r.under(ctx, "term", []*host.Host{l}, r.hold(ctx, 3*time.Second))
}

// cancelMoves cancels what is on the move and moves it again at once: replicas that have
// hardly gone come back.
func cancelMoves(ctx context.Context, r *Run, _ *host.Host) error {
	moves, err := r.ongoing(ctx)
	if err != nil {
		r.note("nothing is cancelled: %v", err)
		return nil
	}
	cancel := kadm.AlterPartitionAssignmentsReq{}
	for _, t := range moves {
		for _, p := range t.Partitions {
			cancel.CancelAssign(t.Topic, p.Partition)
		}
	}
	if len(cancel) > 0 {
		r.note("%d moves are cancelled", r.assign(ctx, cancel))
	}
	return nil
}

// awaitPlaced has the partitions moved to where they were asked for, if they are not on their
// way there, and waits until they are.
func (r *Run) awaitPlaced(ctx context.Context, asked kadm.AlterPartitionAssignmentsReq) error {
	err := r.insist(ctx, "ask for replicas once more", func(ctx context.Context) error {
		got, err := r.crew.Admin().AlterPartitionAssignments(ctx, asked)
		return errors.Join(err, got.Error())
	})
	if err != nil {
		return err
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return err
	}
	m, err := r.metadata(ctx)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if want := asked[*t.Topic][p.Partition]; want != nil && !slices.Equal(p.Replicas, want) {
				r.book.Problem("%s-%d was to be on %v and is on %v", *t.Topic, p.Partition, want, p.Replicas)
			}
		}
	}
	return nil
}
