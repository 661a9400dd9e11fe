package fsm_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/fsm"
)

func drawEvent(t *rapid.T) fsm.GroupEvent {
	text := func(name string) string {
		return rapid.SampledFrom([]string{"", "m", "consumer-billing-1-0c9c4a5e", "ümlaut", strings.Repeat("long ", 80)}).Draw(t, name)
	}
	e := fsm.GroupEvent{
		AtMs: rapid.Int64Range(0, 1<<50).Draw(t, "at"), From: uint8(rapid.IntRange(0, 255).Draw(t, "from")), To: uint8(rapid.IntRange(0, 6).Draw(t, "to")),
		Epoch: rapid.Int32Range(-1, 1<<30).Draw(t, "epoch"), Member: text("member"), ClientID: text("client"), ClientHost: text("host"),
	}
	e.Cause = strings.Join([]string{text("cause"), e.Member, text("cause"), e.Member}, " ")
	return e
}

// short is an event as it can be told again: long texts are cut.
func short(e fsm.GroupEvent) bool {
	return len(e.Member) <= 120 && len(e.ClientID) <= 120 && len(e.ClientHost) <= 120 && len(e.Cause) <= 240
}

// TestHistory: it keeps as many of the last events as its bounds let, each as it was.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h fsm.GroupHistory
		var all []fsm.GroupEvent
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			e := drawEvent(t)
			all = append(all, e)
			h = h.Append(&e)
			if len(h) > 4096 || h.Len() > 32 || h.Len() == 0 {
				t.Fatalf("%d events in %d bytes", h.Len(), len(h))
			}
		}
		got := h.Events()
		if len(got) != h.Len() || len(got) < min(len(all), 5) {
			t.Fatalf("%d events of %d, and %d are counted", len(got), len(all), h.Len())
		}
		for i, e := range got {
			want := all[len(all)-len(got)+i]
			if short(want) && e != want {
				t.Fatalf("event %d is %+v, want %+v", i, e, want)
			}
			if e.AtMs != want.AtMs || !strings.HasPrefix(want.Member, e.Member) || len(want.Member) <= 120 && !strings.HasPrefix(want.Cause, e.Cause) {
				t.Fatalf("event %d is %+v, want %+v, cut", i, e, want)
			}
		}
		n := rapid.IntRange(0, 40).Draw(t, "last")
		if last := h.Last(n).Events(); !reflect.DeepEqual(last, got[max(0, len(got)-n):]) && len(last)+n > 0 && len(got) > 0 {
			t.Fatalf("the last %d of %d are %d", n, len(got), len(last))
		}
	})
}

// TestHistoryIsCarriedOver: a Put adds what the row does not have, whatever of it was
// stored by an earlier one, and changes neither.
func TestHistoryIsCarriedOver(t *testing.T) {
	history := func(from, to int) (h fsm.GroupHistory) {
		for i := from; i <= to; i++ {
			h = h.Append(&fsm.GroupEvent{AtMs: int64(i)})
		}
		return h
	}
	for _, c := range []struct {
		name             string
		stored           int // events 1 to stored are in the row
		from, to         int // what the Put brings
		wantLow, wantTop int64
	}{
		{"the first", 0, 1, 3, 1, 3},
		{"those that follow", 3, 4, 5, 1, 5},
		{"some again", 4, 3, 6, 1, 6},
		{"all again", 6, 4, 6, 1, 6},
		{"none", 6, 7, 6, 1, 6},
		{"some were lost", 3, 6, 7, 1, 7},
		{"too many", 30, 31, 40, 9, 40},
		{"the row has more than the Put knows", 6, 4, 5, 1, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := &fsm.Group{ID: "g", Kind: fsm.ClassicGroup, Noted: uint32(c.stored), History: history(1, c.stored)}
			was := slices.Clone(old.History)
			put := fsm.PutGroup{Group: &fsm.Group{ID: "g", Kind: fsm.ClassicGroup, Epoch: 7, Noted: uint32(c.to), History: history(c.from, c.to)}}
			g := put.Over(old)
			events := g.History.Events()
			if len(events) == 0 || events[0].AtMs != c.wantLow || events[len(events)-1].AtMs != c.wantTop || g.Noted != uint32(c.wantTop) || g.Epoch != 7 {
				t.Errorf("got %d events, %+v", len(events), events)
			}
			for i := 1; i < len(events); i++ {
				if events[i].AtMs <= events[i-1].AtMs {
					t.Errorf("event %d comes after event %d", events[i].AtMs, events[i-1].AtMs)
				}
			}
			if !slices.Equal(old.History, was) {
				t.Error("the stored row was changed")
			}
			if got := put.Over(nil); got != put.Group {
				t.Error("without a row it is not stored as it is")
			}
		})
	}
}

// TestHistoryOfBadBytes: what is no history is refused by Apply, and read as far as it goes.
func TestHistoryOfBadBytes(t *testing.T) {
	im := commitImage(t, 1)
	id := groupName(0)
	for _, h := range []fsm.GroupHistory{{1}, {5, 0}, {0x80}, make(fsm.GroupHistory, 33), make(fsm.GroupHistory, 5000)} {
		slot := fsm.SlotOf(id)
		_, r := fsm.Apply(im, im.Index()+1, fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: im.Slot(slot).Seq + 1, Changes: []fsm.GroupChange{
			fsm.PutGroup{Group: &fsm.Group{ID: id, Kind: fsm.ClassicGroup, History: h}}}})
		if !errors.Is(r.Items[0], fsm.BadCommand) {
			t.Errorf("%d bytes of no history: %v", len(h), r.Items[0])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := fsm.GroupHistory(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes"))
		if n := h.Len(); len(h.Events()) > n {
			t.Fatalf("%d events of %d", len(h.Events()), n)
		}
		h.Last(3)
	})
}
