package fsm_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/fsm"
)

// groupSamples is one command of each kind about groups, with every field set.
func groupSamples() []fsm.Command {
	a, b := topicID("id of orders"), topicID("id of another")
	owned := func(n ...int32) []fsm.TopicPartitions { return []fsm.TopicPartitions{{Topic: a, Partitions: n}} }
	return []fsm.Command{
		fsm.AssignSlots{Items: []fsm.SlotChange{{Slot: 3, Epoch: 7, Owner: 2}, {Slot: 63, Owner: 1}}},
		fsm.SlotCommand{Slot: fsm.SlotOf("billing"), Epoch: 8, Seq: 1 << 40, Changes: []fsm.GroupChange{
			fsm.PutGroup{Group: &fsm.Group{ID: "billing", Kind: fsm.ConsumerGroup, Epoch: 9, AssignmentEpoch: 8, ProtocolType: "consumer", Protocol: "uniform", Leader: "m1",
				MetadataHash: 1<<63 + 5, Noted: 300, History: fsm.GroupHistory(nil).Append(&fsm.GroupEvent{
					AtMs: 1_700_000_000_000, From: 3, To: 6, Epoch: 9, Member: "m1", ClientID: "c", ClientHost: "/10.0.0.1", Cause: "new member m1"}),
				Members: []fsm.GroupMember{{
					ID: "m1", InstanceID: "i1", ClientID: "c", ClientHost: "/10.0.0.1", Rack: "r", SessionMs: 45_000, RebalanceMs: 300_000, Epoch: 9, PreviousEpoch: 8,
					Protocols: []fsm.GroupProtocol{{Name: "range", Metadata: []byte{1, 2}}}, Assignment: []byte{3}, Topics: []string{"orders"}, Regex: "o.*", Assignor: "range",
					Assigned: owned(0, 1, 2), Target: owned(0, 70), Revoking: owned(2, 1),
					Grants: []fsm.Grant{{Epoch: 3, Partitions: owned(0, 1)}, {Epoch: 9, Partitions: owned(0, 2)}},
				}}}},
			fsm.DeleteGroup{ID: "billing"},
			fsm.CommitOffsets{Group: "billing", Member: "m1", Instance: "i1", Epoch: 9, CommitMs: 1_700_000_000_000, ExpireMs: 1_800_000_000_000, Topics: []fsm.CommitTopic{
				{Topic: a, Partitions: []fsm.CommitPartition{
					{Offset: 1 << 33, LeaderEpoch: 4}, {Partition: 1, Offset: 5, LeaderEpoch: 4, Metadata: "by hand"}, {Partition: 70, Offset: 1<<63 - 1, LeaderEpoch: -1},
				}},
				{Topic: b, Partitions: []fsm.CommitPartition{{Partition: 1<<31 - 1, Offset: -1}, {Partition: 0}}},
			}},
			fsm.DeleteOffsets{Group: "billing", Partitions: []fsm.TopicPartition{{Topic: a, Partition: 1}}},
			fsm.ExpireOffsets{Group: "billing", Epoch: 9, Partitions: []fsm.ExpiredOffset{{TP: fsm.TopicPartition{Topic: a}, CommitMs: 1_700_000_000_000}}},
		}},
	}
}

// groupImage is sampleImage with slots, groups of each kind and offsets.
func groupImage(t testing.TB) *fsm.Image {
	t.Helper()
	im := sampleImage(t)
	apply := func(c fsm.Command) fsm.Result {
		var r fsm.Result
		if im, r = fsm.Apply(im, im.Index()+1, c); r.Err != nil || len(r.Skipped) > 0 {
			t.Fatalf("%#v: %+v", c, r)
		}
		return r
	}
	orders := topicID("id of orders")
	slot := fsm.SlotOf("billing")
	apply(fsm.AssignSlots{Items: []fsm.SlotChange{{Slot: 3, Owner: 1}, {Slot: slot, Owner: 1}}})
	put := groupSamples()[1].(fsm.SlotCommand).Changes[0]
	commit := func(group, member string, epoch int32) fsm.GroupChange {
		return fsm.CommitOffsets{Group: group, Member: member, Epoch: epoch, CommitMs: 1000, ExpireMs: -1, Topics: []fsm.CommitTopic{{Topic: orders, Partitions: []fsm.CommitPartition{
			{Partition: 0, Offset: 700, LeaderEpoch: 3}, {Partition: 1, Offset: 1 << 40, LeaderEpoch: -1, Metadata: "note"}}}}}
	}
	apply(fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: 1, Changes: []fsm.GroupChange{put, commit("billing", "m1", 9)}})
	apply(fsm.SlotCommand{Slot: slot, Epoch: 1, Seq: 2, Changes: []fsm.GroupChange{
		commit("billing", "m1", 9), commit("billing", "m1", 8), commit("billing", "m2", 9), fsm.DeleteGroup{ID: "elsewhere"}}})
	return im
}

// TestGoldenGroups holds the formats of groups and of snapshots. What a golden
// snapshot holds is read back, too.
func TestGoldenGroups(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/v1_groups.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands":
			return encoded(groupSamples())
		case "snapshot":
			var snapshot bytes.Buffer
			if err := fsm.WriteSnapshot(&snapshot, groupImage(t)); err != nil {
				t.Fatal(err)
			}
			if im, err := fsm.ReadSnapshot(bytes.NewReader(undump(t, d.Expected))); !d.Rewrite && (err != nil || im.Hash() != groupImage(t).Hash()) {
				t.Errorf("%s: the golden snapshot is read as %v, %v", d.Pos, im, err)
			}
			return hex.Dump(snapshot.Bytes())
		case "hash":
			return fmt.Sprintf("%016x\n%s", groupImage(t).Hash(), show(groupImage(t)))
		}
		t.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
		return ""
	})
}

// undump reads what hex.Dump printed.
func undump(t *testing.T, dump string) (out []byte) {
	t.Helper()
	for _, line := range strings.Split(dump, "\n") {
		bytesOf, _, _ := strings.Cut(line, "|")
		fields := strings.Fields(bytesOf)
		if len(fields) == 0 {
			continue
		}
		p, err := hex.DecodeString(strings.Join(fields[1:], ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p...)
	}
	return out
}
