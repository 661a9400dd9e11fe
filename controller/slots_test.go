package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// slotLoads counts the slots of each broker in a node's Image.
func (tn *testNode) slotLoads() map[fsm.BrokerID]int {
	loads := map[fsm.BrokerID]int{}
	for i := range int32(fsm.Slots) {
		loads[tn.node.Image().Slot(i).Owner]++
	}
	return loads
}

// TestSlotsMove: all slots have owners as soon as there are brokers; a stopping
// broker's are gone when StopBroker returns, a crashed one's when it is fenced.
func TestSlotsMove(t *testing.T) {
	c := newCluster(t, 3)
	longSession(c)
	c.openAll()
	c.registerAll()
	for _, tn := range c.nodes {
		eventually(t, "slots are spread over three brokers", func() bool {
			return evenly(tn.slotLoads(), 3)
		})
	}
	stopped := c.follower()
	id := stopped.node.Identity().NodeID
	slot := ownedBy(t, stopped, id)
	command := fsm.SlotCommand{Slot: slot, Epoch: stopped.node.Image().Slot(slot).Epoch, Seq: 1, Changes: []fsm.GroupChange{fsm.DeleteGroup{ID: groupIn(slot)}}}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	r, err := stopped.node.Propose(ctx, command)
	if err != nil || r.Err != nil || len(r.Items) != 1 || !errors.Is(r.Items[0], fsm.UnknownGroup) {
		t.Fatalf("the owner's command, through another node: %+v, %v", r, err)
	}
	if err := stopped.node.StopBroker(ctx); err != nil {
		t.Fatal(err)
	}
	if loads := stopped.slotLoads(); !evenly(loads, 2) || loads[id] != 0 {
		t.Errorf("after StopBroker of %d the slots are %v", id, loads)
	}
	command.Seq = 2
	if r, err := stopped.node.Propose(ctx, command); err != nil || !errors.Is(r.Err, fsm.StaleSlotEpoch) {
		t.Errorf("the deposed owner's command: %+v, %v", r, err)
	}
	stopped.close()
	crashed := c.follower()
	left := c.survivor(crashed)
	// Two of three nodes are needed to decide: the stopped one is back, without its broker.
	if err := stopped.open(ctx); err != nil {
		t.Fatal(err)
	}
	crashed.crash()
	eventually(t, "all slots belong to the broker that is left", func() bool {
		return left.slotLoads()[left.node.Identity().NodeID] == fsm.Slots
	})
}

// evenly tells whether all slots belong to n brokers, none with two more than another.
func evenly(loads map[fsm.BrokerID]int, n int) bool {
	if len(loads) != n || loads[fsm.NoBroker] != 0 {
		return false
	}
	for _, a := range loads {
		for _, b := range loads {
			if a > b+1 {
				return false
			}
		}
	}
	return true
}

// ownedBy is a slot of a broker.
func ownedBy(t *testing.T, tn *testNode, id fsm.BrokerID) int32 {
	t.Helper()
	for i := range int32(fsm.Slots) {
		if tn.node.Image().Slot(i).Owner == id {
			return i
		}
	}
	t.Fatalf("broker %d owns no slot", id)
	return 0
}

// groupIn is a group id of a slot.
func groupIn(slot int32) string {
	for i := byte(0); ; i++ {
		if id := string([]byte{'g', i}); fsm.SlotOf(id) == slot {
			return id
		}
	}
}
