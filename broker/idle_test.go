package broker

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/weirmq/weir/fsm"
)

// idleBytesMax is the budget of one idle partition, its log and its share of the
// metadata included.
const idleBytesMax = 10 << 10

// TestIdlePartitionsCostOnlyTheirEntry: no goroutine, no open file, under 10 KB each.
func TestIdlePartitionsCostOnlyTheirEntry(t *testing.T) {
	const topics, each = 4, 500
	c := newCluster(t, 1)
	c.topic("first", 1, 1) // connections and lazy parts are there now
	c.produce("first", "a")
	heap, goroutines, files := footprint(t)
	began := time.Now()
	var ids []fsm.TopicID
	for i := range topics {
		ids = append(ids, c.topic(fmt.Sprint("t", i), each, 1))
	}
	c.until("all replicas exist and lead", func() bool {
		for _, id := range ids {
			for i := range int32(each) {
				p := c.nodes[0].env.replicas.Get(fsm.TopicPartition{Topic: id, Partition: i})
				if p == nil {
					return false
				}
				if leader, _ := p.Leader(); leader != 1 {
					return false
				}
			}
		}
		return true
	})
	t.Logf("made in %v", time.Since(began))
	heapNow, goroutinesNow, filesNow := footprint(t)
	per := (int64(heapNow) - int64(heap)) / (topics * each)
	t.Logf("%d partitions: %d bytes each, %d goroutines more, %d files more", topics*each, per, goroutinesNow-goroutines, filesNow-files)
	if per > idleBytesMax {
		t.Errorf("an idle partition takes %d bytes, want at most %d", per, idleBytesMax)
	}
	// Clients of the test come and go; anything per partition would be in the thousands.
	if more := goroutinesNow - goroutines; more > 50 {
		t.Errorf("%d goroutines more", more)
	}
	if more := filesNow - files; more > 50 {
		t.Errorf("%d open files more", more)
	}
	if n := len(c.nodes[0].env.ticks.due); n > 50 {
		t.Errorf("%d partitions wait for a tick", n)
	}
}

func footprint(t *testing.T) (heap uint64, goroutines, files int) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return m.HeapAlloc, runtime.NumGoroutine(), len(open)
}
