package elect

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
)

// brokers makes an Image of brokers 1 to n. state gives each its letter: l for
// live, f for fenced, s for stopping; rack gives its rack.
func brokers(t rapid.TB, state string, rack func(fsm.BrokerID) string) *fsm.Image {
	t.Helper()
	im := fsm.NewImage()
	apply := func(c fsm.Command) fsm.Result {
		var r fsm.Result
		if im, r = fsm.Apply(im, im.Index()+1, c); r.Err != nil {
			t.Fatalf("%#v: %v", c, r.Err)
		}
		return r
	}
	for i, s := range state {
		id := fsm.BrokerID(i + 1)
		epoch := fsm.BrokerEpoch(apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{1}, Rack: rack(id)}).Epoch)
		if s != 'f' {
			apply(fsm.UnfenceBroker{ID: id, Epoch: epoch})
		}
		if s == 's' {
			apply(fsm.StopBroker{ID: id, Epoch: epoch})
		}
	}
	return im
}

func noRack(fsm.BrokerID) string { return "" }

// TestPlaceProperties: what Place promises, for any cluster.
func TestPlaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.StringOfN(rapid.SampledFrom([]rune("lllllfs")), 1, 12, -1).Draw(t, "brokers")
		im := brokers(t, state, noRack)
		partitions := rapid.IntRange(1, 150).Draw(t, "partitions")
		rf := rapid.IntRange(1, 6).Draw(t, "replicas")
		seed := rapid.Uint64().Draw(t, "seed")
		var live, usable int
		for b := range im.Brokers() {
			live += count(b.Eligible())
			usable += count(!b.Stopping)
		}
		got, err := Place(im, partitions, rf, seed)
		var few *TooFewBrokersError
		if live == 0 || usable < rf {
			if !errors.As(err, &few) || few.Live != live || few.Registered != usable || few.Wanted != rf {
				t.Fatalf("%d live, %d usable: got %v, want a TooFewBrokersError", live, usable, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		checkPlacement(t, im, got, partitions, rf, live)
		again, _ := Place(im, partitions, rf, seed)
		if !reflect.DeepEqual(got, again) {
			t.Fatalf("the same seed gives %v, then %v", got, again)
		}
	})
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func checkPlacement(t *rapid.T, im *fsm.Image, got [][]fsm.BrokerID, partitions, rf, live int) {
	if len(got) != partitions {
		t.Fatalf("%d partitions, want %d", len(got), partitions)
	}
	replicas, leads := map[fsm.BrokerID]int{}, map[fsm.BrokerID]int{}
	for i, list := range got {
		if len(list) != rf {
			t.Fatalf("partition %d on %v, want %d replicas", i, list, rf)
		}
		eligible := 0
		for j, id := range list {
			b, ok := im.Broker(id)
			if !ok || b.Stopping || slices.Contains(list[:j], id) {
				t.Fatalf("partition %d on %v: broker %d", i, list, id)
			}
			if b.Eligible() {
				eligible++
			}
			replicas[id]++
		}
		if !im.Eligible(list[0]) || eligible != min(rf, live) {
			t.Fatalf("partition %d on %v: %d live ones, want %d and one first", i, list, eligible, min(rf, live))
		}
		leads[list[0]]++
	}
	checkSpread(t, im, "replicas", replicas, 1)
	checkSpread(t, im, "leaders", leads, 1)
}

// checkSpread compares the live brokers with one another.
func checkSpread(t *rapid.T, im *fsm.Image, what string, n map[fsm.BrokerID]int, most int) {
	var all []int
	for b := range im.Brokers() {
		if b.Eligible() {
			all = append(all, n[b.ID])
		}
	}
	if slices.Max(all)-slices.Min(all) > most {
		t.Fatalf("%s are spread as %v", what, n)
	}
}

// TestPlaceSpreadsSmallTopics: many topics of one partition use all brokers alike,
// and all pairs of them.
func TestPlaceSpreadsSmallTopics(t *testing.T) {
	im := brokers(t, "llllll", noRack)
	const topics = 6000
	first, pairs := map[fsm.BrokerID]int{}, map[string]int{}
	for seed := range uint64(topics) {
		got, err := Place(im, 1, 3, seed*0x51ed)
		if err != nil {
			t.Fatal(err)
		}
		first[got[0][0]]++
		pairs[fmt.Sprint(got[0][:2])]++
	}
	for id, n := range first {
		if n < topics/6*8/10 || n > topics/6*12/10 {
			t.Errorf("broker %d leads %d of %d topics", id, n, topics)
		}
	}
	if len(pairs) != 30 {
		t.Errorf("%d of 30 pairs of brokers are used", len(pairs))
	}
}

// TestPlaceUsesRacks: a partition's replicas lie in different racks where racks
// are as many and equal.
func TestPlaceUsesRacks(t *testing.T) {
	im := brokers(t, "llllllf", func(id fsm.BrokerID) string { return fmt.Sprint("rack", id%3) })
	for seed := range uint64(100) {
		got, err := Place(im, 1, 3, seed)
		if err != nil {
			t.Fatal(err)
		}
		racks := map[string]bool{}
		for _, id := range got[0] {
			b, _ := im.Broker(id)
			racks[b.Rack] = true
		}
		if len(racks) != 3 {
			t.Errorf("seed %d: replicas %v lie in %v", seed, got[0], racks)
		}
	}
}

func TestPlaceRefusesNonsense(t *testing.T) {
	im := brokers(t, "lll", noRack)
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {1, 0}, {1, -1}, {1, fsm.MaxReplicas + 1}} {
		if _, err := Place(im, c[0], c[1], 1); err == nil {
			t.Errorf("%d partitions of %d replicas: accepted", c[0], c[1])
		}
	}
}

func TestInitial(t *testing.T) {
	im := brokers(t, "fls", noRack)
	np, ok := Initial(im, []fsm.BrokerID{1, 3, 2})
	if !ok || np.Leader != 2 || !slices.Equal(np.ISR, []fsm.BrokerID{2}) || len(np.Replicas) != 3 {
		t.Errorf("got %+v, %v", np, ok)
	}
	if np, ok := Initial(im, []fsm.BrokerID{1, 3}); ok {
		t.Errorf("nobody is up: got %+v", np)
	}
}
