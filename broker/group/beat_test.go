package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/broker/group"
)

// Members of a group that changes are told to come soon, so that a rebalance does not take
// as many usual intervals as it has steps.
func TestConsumerHeartbeatInterval(t *testing.T) {
	topics, names := benchTopics()
	b := &benchGroup{g: group.New("g", group.DefaultConfig()), now: noon, topics: fixed{topics}, names: names, epochs: map[string]int32{}}
	beat := func(id string, want time.Duration) {
		t.Helper()
		a := b.call(group.ConsumerRequest{MemberID: id, Epoch: b.epochs[id], RebalanceTimeout: -1})
		if a.HeartbeatInterval != want {
			t.Errorf("member %s at %v is told to come after %v, want %v", id, b.now.Sub(noon), a.HeartbeatInterval, want)
		}
		if a.HasAssignment {
			b.call(group.ConsumerRequest{MemberID: id, Epoch: b.epochs[id], RebalanceTimeout: -1, Owned: a.Assignment})
		}
	}
	const usual, soon = 5 * time.Second, 500 * time.Millisecond
	b.join("a")
	beat("a", soon)
	b.now = b.now.Add(usual)
	beat("a", usual)
	b.join("b")
	b.now = b.now.Add(2 * usual)
	beat("b", soon) // it waits for what a has not given up
	beat("a", soon) // it is told to give some up
	b.settle()
	beat("a", usual)
	beat("b", usual)
	for i := range 998 {
		b.join(fmt.Sprint("many-", i))
	}
	beat("a", time.Second)
}
