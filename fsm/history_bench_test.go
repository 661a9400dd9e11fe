package fsm_test

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// BenchmarkHistory measures the flight recorder: what one more event costs its
// coordinator, and what a group of ten members that has a full history costs to store,
// against the same group without one.
func BenchmarkHistory(b *testing.B) {
	event := func(i int) *fsm.GroupEvent {
		member := fmt.Sprintf("consumer-billing-%d-0c9c4a5e-93c4-4f6e-8ad2-2f1d0a52c8b7", i%10)
		return &fsm.GroupEvent{AtMs: 1_700_000_000_000 + int64(i), From: 3, To: 1, Epoch: int32(i), Member: member, ClientID: fmt.Sprintf("billing-%d", i%10),
			ClientHost: "/10.20.30.40", Cause: "member " + member + " is gone: its session of 45s is over"}
	}
	var full fsm.GroupHistory
	for i := range 100 {
		full = full.Append(event(i))
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		h, i := full, 0
		for b.Loop() {
			h = h.Append(event(i))
			i++
		}
		b.ReportMetric(float64(len(h))/float64(h.Len()), "bytes/event")
		b.ReportMetric(float64(h.Len()), "events")
	})
	for _, history := range []fsm.GroupHistory{nil, full} {
		im := commitImage(b, 1)
		id := groupName(0)
		g := &fsm.Group{ID: id, Kind: fsm.ClassicGroup, Epoch: 1, Noted: 100, History: history}
		for i := range 10 {
			g.Members = append(g.Members, fsm.GroupMember{ID: fmt.Sprintf("consumer-billing-%d-0c9c4a5e-93c4-4f6e-8ad2-2f1d0a52c8b7", i), ClientID: "billing",
				Protocols: []fsm.GroupProtocol{{Name: "range", Metadata: make([]byte, 100)}}, Assignment: make([]byte, 200)})
		}
		put := func(g *fsm.Group) fsm.SlotCommand {
			slot := fsm.SlotOf(id)
			return fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: im.Slot(slot).Seq + 1, Changes: []fsm.GroupChange{fsm.PutGroup{Group: g}}}
		}
		im, _ = fsm.Apply(im, im.Index()+1, put(g))
		next := *g
		next.History = nil
		if history != nil {
			next.Noted, next.History = 102, full.Last(2)
		}
		c := put(&next)
		b.Run(fmt.Sprintf("put/%d-events", history.Len()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, r := fsm.Apply(im, im.Index()+1, c); r.Err != nil || r.Items[0] != nil {
					b.Fatalf("%+v", r)
				}
			}
			b.ReportMetric(float64(len(fsm.EncodeCommand(nil, c))), "bytes/put")
		})
	}
}
