package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/fsm"
)

// samples is one command of each kind with every field set.
func samples() []fsm.Command {
	a, b := topicID("id of orders"), topicID("id of another")
	return []fsm.Command{
		fsm.InitCluster{ClusterID: "Wm1kYXRhLWNsdXN0ZXI"},
		fsm.RegisterBroker{ID: 3, Folder: [16]byte{0xf0, 15: 0xff}, Process: [16]byte{0xa0, 15: 0xaf}, BootID: "boot-7", Client: fsm.Endpoint{Host: "c3.example", Port: 9092},
			Peer: fsm.Endpoint{Host: "p3.example", Port: 9093}, Rack: "r1", PrevCleanEpoch: 17, Replaces: 300, SessionLive: true},
		fsm.FenceBroker{ID: 3, Epoch: 300},
		fsm.UnfenceBroker{ID: 3, Epoch: 300},
		fsm.StopBroker{ID: 3, Epoch: 300},
		fsm.ChangeLeaders{Items: []fsm.LeaderChange{
			{TP: fsm.TopicPartition{Topic: a, Partition: 70}, LeaderEpoch: 5, PartitionEpoch: 9, Leader: 2, ISR: []fsm.BrokerID{2, 1}},
			{TP: fsm.TopicPartition{Topic: b}, LeaderEpoch: 1, PartitionEpoch: 1, Leader: 3, ISR: []fsm.BrokerID{3}, Recovering: true},
			{TP: fsm.TopicPartition{Topic: b, Partition: 1}, Leader: fsm.NoBroker, ISR: []fsm.BrokerID{}},
		}},
		fsm.ChangeISR{Proposer: 2, BrokerEpoch: 41, Items: []fsm.ISRChange{
			{TP: fsm.TopicPartition{Topic: a, Partition: 70}, LeaderEpoch: 6, PartitionEpoch: 10, ISR: []fsm.Member{{ID: 2, Epoch: 41}, {ID: 3, Epoch: 300}}, Durability: fsm.DurabilityFsync, Confirms: true},
		}},
		fsm.CreateTopic{ID: a, Name: "orders", Configs: [][2]string{{"min.insync.replicas", "2"}, {"segment.bytes", "1048576"}},
			Partitions: []fsm.NewPartition{
				{Replicas: []fsm.BrokerID{1, 2, 3}, ISR: []fsm.BrokerID{1, 3}, Leader: 1},
				{Replicas: []fsm.BrokerID{2, 3, 1}, ISR: []fsm.BrokerID{3, 1}, Leader: 3},
			}},
		fsm.DeleteTopic{ID: a},
		fsm.ConfirmDeleted{Broker: 3, BrokerEpoch: 300, Topics: []fsm.TopicID{a, b}},
		fsm.AllocateProducerIDs{Broker: 3, BrokerEpoch: 300, First: 5000, Count: 1000},
		fsm.ReportDamaged{Broker: 3, BrokerEpoch: 300, Items: []fsm.TopicPartition{{Topic: a, Partition: 70}}},
		fsm.AlterTopicConfigs{ID: a, Changes: []fsm.ConfigChange{
			{Name: "min.insync.replicas", Was: text("2"), Now: text("3")}, {Name: "segment.bytes", Was: text("1048576")}, {Name: "retention.ms", Now: text("")},
		}},
		fsm.AddPartitions{ID: a, From: 2, Partitions: []fsm.NewPartition{{Replicas: []fsm.BrokerID{1, 2, 3}, ISR: []fsm.BrokerID{1, 3}, Leader: 1}}},
		fsm.ChangeReplicas{Items: []fsm.ReplicaChange{
			{TP: fsm.TopicPartition{Topic: a, Partition: 70}, LeaderEpoch: 6, PartitionEpoch: 11, Replicas: []fsm.BrokerID{3, 4, 1, 2}, Adding: []fsm.BrokerID{4}, Removing: []fsm.BrokerID{1, 2}, Leader: 2},
			{TP: fsm.TopicPartition{Topic: b}, Replicas: []fsm.BrokerID{3}, Adding: []fsm.BrokerID{}, Removing: []fsm.BrokerID{}, Leader: fsm.NoBroker},
		}},
	}
}

func text(s string) *string { return &s }

// sampleImage has rows of every kind, with every field of a partition in use.
func sampleImage(t testing.TB) *fsm.Image {
	t.Helper()
	im := fsm.NewImage()
	index := uint64(0)
	apply := func(c fsm.Command) {
		index++
		var r fsm.Result
		if im, r = fsm.Apply(im, index, c); r.Err != nil || len(r.Skipped) > 0 {
			t.Fatalf("%#v: %+v", c, r)
		}
	}
	a, gone := topicID("id of orders"), topicID("id of gone")
	apply(fsm.InitCluster{ClusterID: "golden"})
	for id := fsm.BrokerID(1); id <= 3; id++ {
		apply(fsm.RegisterBroker{ID: id, Folder: [16]byte{byte(id)}, Process: [16]byte{byte(id), 1}, BootID: "b", Rack: "r", Client: fsm.Endpoint{Host: "c", Port: 9092}, Peer: fsm.Endpoint{Host: "p", Port: 9093}})
		apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(index)})
	}
	np := fsm.NewPartition{Replicas: []fsm.BrokerID{1, 2, 3}, ISR: []fsm.BrokerID{1, 2, 3}, Leader: 1}
	apply(fsm.CreateTopic{ID: a, Name: "orders", Configs: [][2]string{{"min.insync.replicas", "3"}, {"max.message.bytes", "100"}}, Partitions: []fsm.NewPartition{np, np}})
	apply(fsm.CreateTopic{ID: gone, Name: "gone", Partitions: []fsm.NewPartition{np}})
	apply(fsm.DeleteTopic{ID: gone})
	apply(fsm.AllocateProducerIDs{Broker: 1, BrokerEpoch: 2, Count: 1000})
	apply(fsm.ReportDamaged{Broker: 1, BrokerEpoch: 2, Items: []fsm.TopicPartition{{Topic: a}}})
	apply(fsm.FenceBroker{ID: 3, Epoch: 6})
	apply(fsm.StopBroker{ID: 2, Epoch: 4})
	return im
}

// nodeSamples are the commands about nodes, with every field set.
func nodeSamples() []fsm.Command {
	return []fsm.Command{
		fsm.AdmitNode{ID: 4, Folder: [16]byte{0xf4, 15: 0xff}, Peer: fsm.Endpoint{Host: "p4.example", Port: 9093}},
		fsm.RemoveNode{ID: 4, Folder: [16]byte{0xf4, 15: 0xff}, Epoch: 300},
		fsm.GiveUpBroker{ID: 4, Epoch: 300},
	}
}

// encoded is the names and encodings of commands.
func encoded(commands []fsm.Command) string {
	var out strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&out, "%s\n%x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "fsm."), fsm.EncodeCommand(nil, c))
	}
	return out.String()
}

// TestGoldenNodes holds the forms of commands about nodes still, and of their rows.
func TestGoldenNodes(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/v1_nodes.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands":
			return encoded(nodeSamples())
		case "snapshot":
			im := fsm.NewImage()
			for i, c := range []fsm.Command{nodeSamples()[0], fsm.AdmitNode{ID: 5, Folder: [16]byte{5}}, fsm.RemoveNode{ID: 5, Folder: [16]byte{5}}} {
				im, _ = fsm.Apply(im, uint64(i+1), c)
			}
			var snapshot bytes.Buffer
			if err := fsm.WriteSnapshot(&snapshot, im); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%016x\n%x\n", im.Hash(), snapshot.Bytes())
		}
		t.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
		return ""
	})
}

// TestGolden holds the replicated formats still: bytes of version 1 never change.
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/v1.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands":
			return encoded(samples())
		case "entry":
			return fmt.Sprintf("%x\n", fsm.EncodeEntry(nil, []fsm.Command{samples()[2], samples()[0]}))
		case "hash":
			return fmt.Sprintf("%016x\n%s", sampleImage(t).Hash(), show(sampleImage(t)))
		}
		t.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
		return ""
	})
}

func TestSamplesRoundTrip(t *testing.T) {
	for _, c := range slices.Concat(samples(), groupSamples(), nodeSamples()) {
		got, err := fsm.DecodeCommand(fsm.EncodeCommand(nil, c))
		if err != nil {
			t.Fatalf("%#v: %v", c, err)
		}
		if !reflect.DeepEqual(got, c) || reflect.TypeOf(got) != reflect.TypeOf(c) {
			t.Errorf("got %#v, want %#v", got, c)
		}
	}
	entry := fsm.EncodeEntry([]byte("kept"), samples())
	got, err := fsm.DecodeEntry(entry[4:])
	if err != nil || !reflect.DeepEqual(got, samples()) || string(entry[:4]) != "kept" {
		t.Errorf("entry: got %v, %v; want %v", got, err, samples())
	}
}

func TestDecodeErrors(t *testing.T) {
	fence := fsm.EncodeCommand(nil, samples()[2])
	for _, c := range []struct {
		name    string
		in      []byte
		unknown bool
	}{
		{"empty", nil, false},
		{"kind only", fence[:1], false},
		{"short body", fence[:len(fence)-1], false},
		{"trailing byte", append(bytes.Clone(fence), 0), false},
		{"kind 0", []byte{0, 1}, true},
		{"kind of a later release", []byte{200, 1, 1, 2}, true},
		{"version 0", append([]byte{fence[0], 0}, fence[2:]...), true},
		{"version of a later release", append([]byte{fence[0], 2}, fence[2:]...), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(what string, err error) {
				var unknown *fsm.UnknownCommandError
				if errors.As(err, &unknown) != c.unknown || errors.Is(err, fsm.ErrMalformed) == c.unknown {
					t.Errorf("%s %x: got %v, want unknown %v", what, c.in, err, c.unknown)
				}
			}
			_, err := fsm.DecodeCommand(c.in)
			check("command", err)
			entry := append([]byte{1, 2, byte(len(c.in) + 1)}, c.in...)
			_, err = fsm.DecodeEntry(entry)
			check("entry", err)
		})
	}
	var unknown *fsm.UnknownCommandError
	if _, err := fsm.DecodeEntry([]byte{9, 1}); !errors.As(err, &unknown) {
		t.Errorf("entry of version 9: got %v, want an UnknownCommandError", err)
	}
	if _, err := fsm.DecodeEntry(nil); !errors.Is(err, fsm.ErrMalformed) {
		t.Errorf("empty entry: got %v, want ErrMalformed", err)
	}
}

// TestJoinEntries: entries joined are the entry of all their commands.
func TestJoinEntries(t *testing.T) {
	all := samples()
	parts := [][]fsm.Command{all[:1], nil, all[1:5], all[5:]}
	var entries [][]byte
	for _, cs := range parts {
		entries = append(entries, fsm.EncodeEntry(nil, cs))
	}
	joined, counts, err := fsm.JoinEntries(entries)
	if err != nil || !bytes.Equal(joined, fsm.EncodeEntry(nil, all)) {
		t.Errorf("joined %x, %v; want %x", joined, err, fsm.EncodeEntry(nil, all))
	}
	if want := []int{1, 0, 4, len(all) - 5}; !slices.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	for _, bad := range [][]byte{nil, {1}, entries[0][:len(entries[0])-1]} {
		if _, _, err := fsm.JoinEntries([][]byte{entries[0], bad}); !errors.Is(err, fsm.ErrMalformed) {
			t.Errorf("join with %x: got %v, want ErrMalformed", bad, err)
		}
	}
}

// TestSnapshotDamage flips each bit and cuts at each byte of a snapshot: none may
// be taken for another content. (A flag is true for any byte but zero.)
func TestSnapshotDamage(t *testing.T) {
	var snapshot bytes.Buffer
	want := groupImage(t)
	if err := fsm.WriteSnapshot(&snapshot, want); err != nil {
		t.Fatal(err)
	}
	good := snapshot.Bytes()
	for i := range good {
		var corrupt *fsm.CorruptSnapshotError
		if _, err := fsm.ReadSnapshot(bytes.NewReader(good[:i])); !errors.As(err, &corrupt) {
			t.Fatalf("cut at byte %d: got %v, want a CorruptSnapshotError", i, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			im, err := fsm.ReadSnapshot(bytes.NewReader(bad))
			if err == nil && (im.Hash() != want.Hash() || im.Index() != want.Index() || show(im) != show(want)) {
				t.Fatalf("bit %d of byte %d flipped: accepted", bit, i)
			}
		}
	}
}

// brokenReader fails after some bytes.
type brokenReader struct{ left int }

var errBroken = errors.New("broken")

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errBroken
	}
	n := copy(p, "weirimg\n"[8-r.left:])
	r.left -= n
	return n, nil
}

func (r *brokenReader) Write(p []byte) (int, error) { return 0, errBroken }

func TestSnapshotIOErrors(t *testing.T) {
	if _, err := fsm.ReadSnapshot(&brokenReader{left: 8}); !errors.Is(err, errBroken) {
		t.Errorf("read: got %v, want the reader's error", err)
	}
	if err := fsm.WriteSnapshot(&brokenReader{}, sampleImage(t)); !errors.Is(err, errBroken) {
		t.Errorf("write: got %v, want the writer's error", err)
	}
}
