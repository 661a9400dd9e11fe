package cluster

import (
	"context"
	"testing"
	"time"
)

// TestGroupOfManyMembers makes one group of many members over twice as many partitions, of
// both protocols: all at once, and then one more. It reports how long after the last join
// the group was stable: every partition with one member, all members at one epoch. The one
// more comes after the group has been stable for WEIR_SETTLE.
func TestGroupOfManyMembers(t *testing.T) {
	members, trials := scaleOf(t, "WEIR_MEMBERS", 20), scaleOf(t, "WEIR_TRIALS", 1)
	settle := timeOf(t, "WEIR_SETTLE", time.Millisecond)
	partitions := 2 * members
	r := newGroupRig(t, time.Duration(trials)*2*time.Minute+5*time.Minute, int32(partitions))
	id := r.topicID()
	lives := []struct {
		protocol string
		live     func(*crowdMember, context.Context) error
	}{{"classic", (*crowdMember).liveClassic}, {"consumer", (*crowdMember).liveConsumer}}
	t.Logf("%-9s %8s %10s %20s %20s %22s", "protocol", "members", "partitions", "all at once ms", "one more ms", "CPU s, three nodes")
	for trial := range trials {
		for _, l := range lives {
			ctx, cancel := context.WithCancel(r.ctx)
			c := &crowd{rig: r, group: l.protocol + "-" + string(rune('a'+trial%26)) + "-large", partitions: partitions, topicID: id}
			before, _ := r.cpu()
			c.join(ctx, members, l.live)
			all := c.settled()
			<-time.After(settle)
			c.join(ctx, 1, l.live)
			more := c.settled()
			after, _ := r.cpu()
			t.Logf("%-9s %8d %10d %20d %20d %22.2f", l.protocol, members+1, partitions, all.Milliseconds(), more.Milliseconds(), (after - before).Seconds())
			cancel()
			for _, m := range c.members {
				if w := m.conn; w != nil {
					_ = w.SetDeadline(time.Now())
				}
			}
			c.wg.Wait()
		}
	}
}
