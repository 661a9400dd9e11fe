package elect

import (
	"testing"

	"github.com/weirmq/weir/fsm"
)

// TestMayDiffer takes partitions that lose and gain leaders: also when as many are
// without one as before, the election must look again.
func TestMayDiffer(t *testing.T) {
	im := fsm.NewImage()
	apply := func(c fsm.Command) *fsm.Image {
		t.Helper()
		next, r := fsm.Apply(im, im.Index()+1, c)
		if r.Err != nil || len(r.Skipped) > 0 {
			t.Fatalf("%#v: %v %v", c, r.Err, r.Why)
		}
		im = next
		return im
	}
	id := fsm.TopicID{1}
	for b := fsm.BrokerID(1); b <= 2; b++ {
		apply(fsm.RegisterBroker{ID: b, Folder: [16]byte{byte(b)}, Process: [16]byte{1}})
		apply(fsm.UnfenceBroker{ID: b, Epoch: fsm.BrokerEpoch(im.Index())})
	}
	np := func(leader fsm.BrokerID) fsm.NewPartition {
		return fsm.NewPartition{Replicas: []fsm.BrokerID{1, 2}, ISR: []fsm.BrokerID{1, 2}, Leader: leader}
	}
	led := apply(fsm.CreateTopic{ID: id, Name: "t", Partitions: []fsm.NewPartition{np(1), np(2)}})
	other := apply(fsm.CreateTopic{ID: fsm.TopicID{2}, Name: "u", Partitions: []fsm.NewPartition{np(1)}})
	if MayDiffer(led, other) {
		t.Error("a new topic whose partitions are led")
	}
	tp := func(i int32) fsm.TopicPartition { return fsm.TopicPartition{Topic: id, Partition: i} }
	b1, _ := im.Broker(1)
	b2, _ := im.Broker(2)
	without0 := apply(fsm.ReportDamaged{Broker: 1, BrokerEpoch: b1.Epoch, Items: []fsm.TopicPartition{tp(0)}})
	if !MayDiffer(other, without0) {
		t.Error("a partition lost its leader")
	}
	p, _ := im.Partition(tp(0))
	apply(fsm.ChangeLeaders{Items: []fsm.LeaderChange{{TP: tp(0), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Leader: 2, ISR: []fsm.BrokerID{2}}}})
	without1 := apply(fsm.ReportDamaged{Broker: 2, BrokerEpoch: b2.Epoch, Items: []fsm.TopicPartition{tp(1)}})
	if without0.LeaderlessCount() != without1.LeaderlessCount() {
		t.Fatal("the counts differ, which is not what this test is about")
	}
	if !MayDiffer(without0, without1) {
		t.Error("one partition lost its leader while another got one")
	}
	value := "true"
	if aged := apply(fsm.AlterTopicConfigs{ID: id, Changes: []fsm.ConfigChange{{Name: "preallocate", Now: &value}}}); MayDiffer(without1, aged) {
		t.Error("a config that does not concern elections")
	}
	was := im
	if allowed := apply(fsm.AlterTopicConfigs{ID: id, Changes: []fsm.ConfigChange{{Name: "unclean.leader.election.enable", Now: &value}}}); !MayDiffer(was, allowed) {
		t.Error("a topic allows its unclean election")
	}
	if fenced := apply(fsm.FenceBroker{ID: 1, Epoch: b1.Epoch}); !MayDiffer(without1, fenced) {
		t.Error("a broker was fenced")
	}
	idle := apply(fsm.InitCluster{ClusterID: "c"})
	if next := apply(fsm.AllocateProducerIDs{Broker: 2, BrokerEpoch: b2.Epoch, Count: 1}); MayDiffer(idle, next) {
		t.Error("nothing that concerns elections")
	}
}
