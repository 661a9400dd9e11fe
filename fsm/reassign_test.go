package fsm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/batch"
)

// changeReplicas is the change that a step's lines give: what a line does not name is as
// it is in the Image.
func (s *script) changeReplicas() fsm.Command {
	var c fsm.ChangeReplicas
	for _, line := range s.lines() {
		tp := s.tp(line.name)
		p, _ := s.im.Partition(tp)
		item := fsm.ReplicaChange{TP: tp, LeaderEpoch: batch.Epoch(line.number("le", int64(p.LeaderEpoch))),
			PartitionEpoch: fsm.PartitionEpoch(line.number("pe", int64(p.PartitionEpoch))),
			Replicas:       p.Replicas, Adding: p.Adding, Removing: p.Removing,
			Leader: fsm.BrokerID(line.number("leader", int64(p.Leader)))}
		for name, list := range map[string]*[]fsm.BrokerID{"replicas": &item.Replicas, "adding": &item.Adding, "removing": &item.Removing} {
			if line.has(name) {
				*list = ids(line.get(name))
			}
		}
		c.Items = append(c.Items, item)
	}
	return c
}

// reassign asks for the reassignment that each line names, or for the end of it where
// there is no target, and applies what is decided.
func (s *script) reassign() string {
	var out strings.Builder
	var c fsm.ChangeReplicas
	for _, line := range s.lines() {
		item, err := elect.Reassign(s.im, s.tp(line.name), ids(line.get("to")))
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", line.name, err)
			continue
		}
		c.Items = append(c.Items, item)
	}
	if len(c.Items) == 0 {
		return out.String()
	}
	return out.String() + s.reassigned(c)
}

// finish completes what can be.
func (s *script) finish() string {
	var c fsm.ChangeReplicas
	for tp := range s.im.Reassigning() {
		if item, ok := elect.FinishReassignment(s.im, tp); ok {
			c.Items = append(c.Items, item)
		}
	}
	if len(c.Items) == 0 {
		return "nothing to finish\n"
	}
	return s.reassigned(c)
}

func (s *script) reassigned(c fsm.ChangeReplicas) string {
	var out strings.Builder
	for _, i := range c.Items {
		fmt.Fprintf(&out, "decides %s replicas %s adding %s removing %s leader %d\n", s.tpName(i.TP), idList(i.Replicas), idList(i.Adding), idList(i.Removing), i.Leader)
	}
	return out.String() + s.apply(c)
}

// reassignment prints what a partition's reassignment adds to its line.
func reassignment(p fsm.Partition) string {
	out := ""
	if len(p.Adding) > 0 {
		out += " adding " + idList(p.Adding)
	}
	if len(p.Removing) > 0 {
		out += " removing " + idList(p.Removing)
	}
	return out + flag(" confirmed", p.Confirmed) + flag(" awaited", p.Awaited())
}

// drawReplicas draws a reassignment as an operator may ask for it, its completion, or
// lists close to those of a partition.
func drawReplicas(t *rapid.T, im *fsm.Image) fsm.Command {
	var c fsm.ChangeReplicas
	for _, tp := range drawPartitions(t, im) {
		p, _ := im.Partition(tp)
		kinds := []string{"reassign", "reassign", "lists"}
		if p.Reassigning() {
			kinds = []string{"reassign", "finish", "cancel", "lists", "leave", "leave"}
		}
		switch rapid.SampledFrom(kinds).Draw(t, "replicas") {
		case "reassign":
			if item, err := elect.Reassign(im, tp, drawTarget(t, im)); err == nil {
				c.Items = append(c.Items, item)
			}
		case "leave":
			c.Items = append(c.Items, drawLeave(t, tp, p))
		case "finish":
			if item, ok := elect.FinishReassignment(im, tp); ok {
				c.Items = append(c.Items, item)
			}
		case "cancel":
			if item, err := elect.Reassign(im, tp, nil); err == nil {
				c.Items = append(c.Items, item)
			}
		default:
			c.Items = append(c.Items, drawLists(t, tp, p))
		}
	}
	return c
}

// drawTarget draws replicas for a partition, of brokers that are registered.
func drawTarget(t *rapid.T, im *fsm.Image) []fsm.BrokerID {
	target := []fsm.BrokerID{}
	for b := range im.Brokers() {
		if rapid.Bool().Draw(t, "replica") {
			target = append(target, b.ID)
		}
	}
	return target
}

// drawLeave lets all that are to leave go at once, safe or not.
func drawLeave(t *rapid.T, tp fsm.TopicPartition, p fsm.Partition) fsm.ReplicaChange {
	c := fsm.ReplicaChange{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Replicas: p.Target(), Leader: p.Leader}
	if rapid.Bool().Draw(t, "cancel") {
		c.Replicas = p.Current()
	}
	if !slices.Contains(c.Replicas, c.Leader) {
		c.Leader = fsm.NoBroker
		for _, id := range p.ISR {
			if slices.Contains(c.Replicas, id) {
				c.Leader = id
			}
		}
	}
	return c
}

// drawLists draws a change that lets replicas come and go as it likes.
func drawLists(t *rapid.T, tp fsm.TopicPartition, p fsm.Partition) fsm.ReplicaChange {
	c := fsm.ReplicaChange{TP: tp, LeaderEpoch: p.LeaderEpoch + batch.Epoch(drawSlip(t)), PartitionEpoch: p.PartitionEpoch + fsm.PartitionEpoch(drawSlip(t)),
		Leader: p.Leader, Adding: slices.Clone(p.Adding), Removing: slices.Clone(p.Removing)}
	for _, id := range p.Replicas {
		if drawSlip(t) == 0 {
			c.Replicas = append(c.Replicas, id)
		}
	}
	if drawSlip(t) != 0 {
		c.Leader = drawBroker(t)
	}
	for _, list := range []*[]fsm.BrokerID{&c.Replicas, &c.Adding, &c.Removing} {
		if id := drawBroker(t); rapid.Bool().Draw(t, "toggle") {
			if i := slices.Index(*list, id); i >= 0 {
				*list = slices.Delete(*list, i, i+1)
			} else {
				*list = append(*list, id)
			}
		}
	}
	return c
}

// checkReplicaGuards states again what an accepted replica change needed. What it says of
// a leave is the rule of H24, in other words than Apply's.
func checkReplicaGuards(t *rapid.T, old, im *fsm.Image, c fsm.ChangeReplicas, r fsm.Result) {
	for i, item := range c.Items {
		if slices.Contains(r.Skipped, i) {
			continue
		}
		p, ok := old.Partition(item.TP)
		now, _ := im.Partition(item.TP)
		if !ok || p.LeaderEpoch != item.LeaderEpoch || p.PartitionEpoch != item.PartitionEpoch || now.PartitionEpoch != p.PartitionEpoch+1 {
			t.Fatalf("item %+v turns %+v into %+v", item, p, now)
		}
		if !slices.Equal(now.Replicas, item.Replicas) || now.Leader != item.Leader || len(now.Current()) == 0 || len(now.Target()) == 0 {
			t.Fatalf("item %+v gives %+v", item, now)
		}
		if item.Leader != p.Leader && item.Leader != fsm.NoBroker && !old.Eligible(item.Leader) {
			t.Fatalf("item %+v elects a leader that is not eligible", item)
		}
		for _, id := range item.Replicas {
			if _, known := old.Broker(id); !known {
				t.Fatalf("item %+v adds a broker that never was", item)
			}
			if !slices.Contains(p.Replicas, id) && !slices.Contains(now.Adding, id) {
				t.Fatalf("item %+v makes %d a full replica at once: %+v", item, id, now)
			}
			if slices.Contains(p.Adding, id) && !slices.Contains(now.Adding, id) && !slices.Contains(now.ISR, id) {
				t.Fatalf("item %+v makes %d a full replica outside the ISR: %+v", item, id, now)
			}
		}
		checkLeavers(t, p, now)
	}
}

// checkLeavers checks who left.
func checkLeavers(t *rapid.T, p, now fsm.Partition) {
	for _, id := range p.Replicas {
		if slices.Contains(now.Replicas, id) {
			continue
		}
		if now.LeaderEpoch == p.LeaderEpoch {
			t.Fatalf("%d leaves within a leader epoch: %+v to %+v", id, p, now)
		}
		removed, added := slices.Contains(p.Removing, id), slices.Contains(p.Adding, id)
		if !removed && !added {
			t.Fatalf("%d leaves unannounced: %+v to %+v", id, p, now)
		}
		full := len(now.ISR) >= int(now.MinISR)
		for _, a := range p.Adding {
			full = full && (added || slices.Contains(p.ISR, a))
		}
		if removed && !full {
			t.Fatalf("%d is removed before others have replaced it: %+v to %+v", id, p, now)
		}
		needed := slices.Contains(slices.Concat(p.ISR, p.ELR, p.LastMembers), id)
		if needed && (!p.Confirmed || len(now.ISR) < int(now.MinISR)) {
			t.Fatalf("%d leaves with what others may lack: %+v to %+v", id, p, now)
		}
		if slices.Contains(slices.Concat(now.ISR, now.ELR, now.LastMembers), id) {
			t.Fatalf("%d has left, and has a seat: %+v", id, now)
		}
	}
}

// checkReassign checks that whatever is decided is accepted, that a completed reassignment
// is over, and that one which waits for nobody completes.
func checkReassign(t *rapid.T, im *fsm.Image) {
	n := 0
	for tp, p := range im.Reassigning() {
		if n++; n > 3 {
			break
		}
		c, ok := elect.FinishReassignment(im, tp)
		if ok {
			next, r := fsm.Apply(im, im.Index()+1, fsm.ChangeReplicas{Items: []fsm.ReplicaChange{c}})
			now, _ := next.Partition(tp)
			if len(r.Skipped) > 0 || now.Reassigning() || !slices.Equal(now.Replicas, p.Target()) || now.Leader == fsm.NoBroker {
				t.Fatalf("%+v completes %+v: %+v, %+v", c, p, r, now)
			}
		}
		ready := p.Leader != fsm.NoBroker && p.Confirmed && len(p.ISR) == len(p.Replicas)
		if ready && !ok && slices.ContainsFunc(p.Target(), im.Eligible) {
			t.Fatalf("%+v does not complete", p)
		}
		_, err := elect.Reassign(im, tp, nil)
		if ready && err != nil || err != nil && !errors.Is(err, fsm.ReplicaNeeded) {
			t.Fatalf("%+v can not be cancelled: %v", p, err)
		}
	}
}

// TestRandomReassignments lets the replicas of one partition come and go while its brokers
// do, with the checks of TestRandomCommands.
func TestRandomReassignments(t *testing.T) {
	seeds.Alone(t)
	rapid.Check(t, func(t *rapid.T) {
		im, held, index := fsm.NewImage(), holders{}, uint64(0)
		apply := func(c fsm.Command) {
			index++
			next, r := fsm.Apply(im, index, c)
			verifyQuick(t, im, next)
			checkGuards(t, im, next, c, r)
			checkEpochs(t, im, next)
			held.follow(t, im, next, c, r)
			checkElection(t, next)
			checkReassign(t, next)
			im = next
		}
		for id := fsm.BrokerID(1); id <= 5; id++ {
			apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{byte(id)}, BootID: "x"})
			apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(index)})
		}
		apply(fsm.CreateTopic{ID: topicID("t"), Name: "t", Partitions: []fsm.NewPartition{{Replicas: []fsm.BrokerID{1, 2, 3}, ISR: []fsm.BrokerID{1, 2, 3}, Leader: 1}}})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			apply(drawMove(t, im))
		}
		verify(t, im, im)
	})
}

// drawMove draws what may happen to the partition of TestRandomReassignments.
func drawMove(t *rapid.T, im *fsm.Image) fsm.Command {
	tp := fsm.TopicPartition{Topic: topicID("t")}
	p, _ := im.Partition(tp)
	b := rapid.SampledFrom(slices.Collect(im.Brokers())).Draw(t, "broker")
	switch rapid.SampledFrom([]string{"replicas", "replicas", "join", "join", "confirm", "drop", "fence", "unfence", "elect", "register", "alter"}).Draw(t, "move") {
	case "replicas":
		return drawReplicas(t, im)
	case "join":
		return drawMembers(im, tp, p, func(fsm.BrokerID) bool { return true })
	case "confirm":
		return drawMembers(im, tp, p, func(id fsm.BrokerID) bool { return slices.Contains(p.ISR, id) })
	case "drop":
		return drawMembers(im, tp, p, func(id fsm.BrokerID) bool { return slices.Contains(p.ISR, id) && id != b.ID })
	case "fence":
		return fsm.FenceBroker{ID: b.ID, Epoch: b.Epoch}
	case "unfence":
		return fsm.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}
	case "register":
		return drawRegister(t, im)
	case "alter":
		return drawAlter(t, im)
	}
	return fsm.ChangeLeaders{Items: elect.Leaders(im)}
}

// drawMembers is the wish of the leader to have those replicas in the ISR that are able to and
// that in names. It says that it confirms them.
func drawMembers(im *fsm.Image, tp fsm.TopicPartition, p fsm.Partition, in func(fsm.BrokerID) bool) fsm.Command {
	b, _ := im.Broker(p.Leader)
	item := fsm.ISRChange{TP: tp, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Confirms: true}
	for _, id := range p.Replicas {
		if m, _ := im.Broker(id); id == p.Leader || m.Eligible() && in(id) {
			item.ISR = append(item.ISR, fsm.Member{ID: id, Epoch: m.Epoch})
		}
	}
	return fsm.ChangeISR{Proposer: p.Leader, BrokerEpoch: b.Epoch, Items: []fsm.ISRChange{item}}
}
