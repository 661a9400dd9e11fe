package fsm_test

import (
	"fmt"

	"github.com/weirmq/weir/fsm"
)

// Three facts make a cluster of one broker with one topic; a fourth, decided
// before the broker restarted, is refused.
func Example() {
	im := fsm.NewImage()
	for index, c := range []fsm.Command{
		fsm.RegisterBroker{ID: 1, Folder: [16]byte{1}, Process: [16]byte{1}, BootID: "boot"},
		fsm.UnfenceBroker{ID: 1, Epoch: 1},
		fsm.CreateTopic{ID: fsm.TopicID{7}, Name: "orders", Partitions: []fsm.NewPartition{
			{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1},
		}},
		fsm.RegisterBroker{ID: 1, Folder: [16]byte{1}, Process: [16]byte{2}, BootID: "boot", Replaces: 1},
		fsm.FenceBroker{ID: 1, Epoch: 1},
	} {
		var r fsm.Result
		im, r = fsm.Apply(im, uint64(index+1), c)
		fmt.Printf("%T: epoch %d, error %v\n", c, r.Epoch, r.Err)
	}
	p, _ := im.Partition(fsm.TopicPartition{Topic: fsm.TopicID{7}})
	fmt.Println("leader", p.Leader, "ISR", p.ISR, "may lead after its return", p.ELR)
	// Output:
	// fsm.RegisterBroker: epoch 1, error <nil>
	// fsm.UnfenceBroker: epoch 0, error <nil>
	// fsm.CreateTopic: epoch 0, error <nil>
	// fsm.RegisterBroker: epoch 4, error <nil>
	// fsm.FenceBroker: epoch 0, error stale broker epoch
	// leader -1 ISR [] may lead after its return [1]
}
