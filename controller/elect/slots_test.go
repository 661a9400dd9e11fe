package elect

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
)

// TestSlotsProperties: what Slots promises, for any cluster and any owners so far.
func TestSlotsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.StringOfN(rapid.SampledFrom([]rune("lllllfs")), 0, 70, -1).Draw(t, "brokers")
		im := brokers(t, state, noRack)
		var live []fsm.BrokerID
		for b := range im.Brokers() {
			if b.Eligible() {
				live = append(live, b.ID)
			}
		}
		var before fsm.AssignSlots
		for i := range int32(fsm.Slots) {
			if len(live) > 0 && rapid.Bool().Draw(t, "owned") {
				before.Items = append(before.Items, fsm.SlotChange{Slot: i, Owner: live[rapid.IntRange(0, min(len(live), 3)-1).Draw(t, "owner")]})
			}
		}
		im, _ = fsm.Apply(im, im.Index()+1, before)
		got := Slots(im)
		if again := Slots(im); !reflect.DeepEqual(got, again) {
			t.Fatalf("asked twice: %v, then %v", got, again)
		}
		next, r := fsm.Apply(im, im.Index()+1, fsm.AssignSlots{Items: got})
		if len(r.Skipped) > 0 {
			t.Fatalf("Apply skips %v of %v", r.Skipped, got)
		}
		checkSlots(t, im, next, live)
	})
}

// checkSlots checks that the slots are even, and that nobody both got and lost some.
func checkSlots(t *rapid.T, old, im *fsm.Image, live []fsm.BrokerID) {
	loads, gained, lost := map[fsm.BrokerID]int{}, map[fsm.BrokerID]bool{}, map[fsm.BrokerID]bool{}
	for i := range int32(fsm.Slots) {
		was, is := old.Slot(i).Owner, im.Slot(i).Owner
		loads[is]++
		if was != is {
			gained[is], lost[was] = true, true
		}
	}
	if len(live) == 0 {
		if loads[fsm.NoBroker] != fsm.Slots {
			t.Fatalf("slots of nobody: %v", loads)
		}
		return
	}
	sum, least, most := 0, fsm.Slots, 0
	for _, id := range live {
		sum, least, most = sum+loads[id], min(least, loads[id]), max(most, loads[id])
		if gained[id] && lost[id] {
			t.Fatalf("broker %d both gained and lost slots", id)
		}
	}
	if sum != fsm.Slots || most > least+1 {
		t.Fatalf("loads %v of %v", loads, live)
	}
}
