package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
)

// holders notes which client has each partition of topic "t", by what the clients are
// told themselves. A nil one notes nothing.
type holders struct {
	mu     sync.Mutex
	has    map[int32]string // guarded by mu
	faults []string         // guarded by mu
}

func (h *holders) take(who string, partitions []int32) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range partitions {
		if o := h.has[p]; o != "" && o != who {
			h.faults = append(h.faults, fmt.Sprintf("%s was given partition %d, which %s had", who, p, o))
		}
		h.has[p] = who
	}
}

func (h *holders) release(who string, partitions []int32) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range partitions {
		if h.has[p] == who {
			delete(h.has, p)
		}
	}
}

func (h *holders) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// load produces to the partitions of topic "t" in turn until the test stops it, and
// returns how many records there are in each.
func (c *cluster) load(partitions int32) (stop func() map[int32]int) {
	cl := c.client(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ctx, cancel := context.WithCancel(context.Background())
	sent := map[int32]int{}
	var done sync.WaitGroup
	done.Go(func() { // ends with ctx; stop waits
		for n := 0; ctx.Err() == nil; n++ {
			p := int32(n) % partitions
			r := kgo.StringRecord(fmt.Sprintf("%d/%d", p, sent[p]))
			r.Partition = p
			if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				c.Errorf("produce: %v", err)
				return
			}
			sent[p]++
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	c.Cleanup(end)
	return func() map[int32]int {
		end()
		return sent
	}
}

// watchCommits looks at the committed offsets of group "g" until the test ends: none
// may go back.
func (c *cluster) watchCommits(all *holders) {
	adm := kadm.NewClient(c.client())
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { // ends with ctx; the cleanup waits
		best := map[int32]int64{}
		for ctx.Err() == nil {
			offsets, err := adm.FetchOffsets(ctx, "g")
			if err != nil {
				continue
			}
			offsets.Each(func(o kadm.OffsetResponse) {
				if o.Err == nil && o.At < best[o.Partition] {
					all.fault("the committed offset of partition %d went back from %d to %d", o.Partition, best[o.Partition], o.At)
				}
				best[o.Partition] = max(best[o.Partition], o.At)
			})
		}
	})
	c.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// Clients of a group are exchanged one by one for ones of the consumer protocol, and
// back, while records come in and the coordinator dies halfway: each record is read,
// no partition is with two clients, no committed offset goes back, no client is
// forgotten, and the group is of the kind that its clients ask for.
func TestGroupMigration(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"eager": kgo.RangeBalancer(), "cooperative": kgo.CooperativeStickyBalancer()} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, func(i int, cfg *Config) {
				quickGroups(i, cfg)
				cfg.Groups.ConsumerHeartbeat, cfg.Groups.AssignmentInterval = 200*time.Millisecond, 50*time.Millisecond
			})
			c.topic("t", 6, 3)
			r := &roll{c: c, all: &holders{has: map[int32]string{}}, classic: []kgo.Opt{kgo.Balancers(balancer)},
				consumer: []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}}
			stop := c.load(6)
			c.watchCommits(r.all)
			for range 3 {
				r.start(r.classic)
			}
			c.spread([]int{2, 2, 2}, r.now...)
			r.exchange(r.consumer)
			r.kind(fsm.ConsumerGroup, "the group moves to the consumer protocol with 2 members of the classic protocol")
			old := c.coordinator("g")
			c.kill(old)
			c.until("another node coordinates", func() bool { return c.coordinator("g") != old })
			r.exchange(r.consumer)
			c.start(old)
			r.exchange(r.consumer)
			r.exchange(r.classic)
			r.kind(fsm.ConsumerGroup)
			r.exchange(r.classic)
			r.exchange(r.classic)
			r.kind(fsm.ClassicGroup, "the group moves to the classic protocol, which all its members speak")
			r.finish(stop())
		})
	}
}

// roll is the exchange of clients.
type roll struct {
	c        *cluster
	all      *holders
	classic  []kgo.Opt
	consumer []kgo.Opt
	now      []*member // those that are in the group, the first to go first
	gone     []*member
}

func (r *roll) start(opts []kgo.Opt) {
	r.c.Helper()
	r.now = append(r.now, r.c.joinAmong(r.all, fmt.Sprint("client", len(r.now)+len(r.gone)), opts...))
}

// exchange replaces the oldest client, and waits until each has its share.
func (r *roll) exchange(opts []kgo.Opt) {
	r.c.Helper()
	r.now[0].leave()
	r.gone, r.now = append(r.gone, r.now[0]), r.now[1:]
	r.start(opts)
	r.c.spread([]int{2, 2, 2}, r.now...)
}

// kind fails unless the group is of that kind, and remembers how it came to be.
func (r *roll) kind(kind fsm.GroupKind, causes ...string) {
	r.c.Helper()
	row, ok := r.c.any().controller.Image().Group("g")
	if !ok || row.Kind != kind {
		r.c.Fatalf("the group is %+v, want kind %d", row, kind)
	}
	r.c.remembers("g", causes...)
}

// finish waits until all is read and committed, and fails if anything was wrong.
func (r *roll) finish(sent map[int32]int) {
	r.c.Helper()
	missing := map[string]bool{}
	total := 0
	for p, n := range sent {
		total += n
		for i := range n {
			missing[fmt.Sprintf("%d/%d", p, i)] = true
		}
	}
	reads := 0
	r.c.until("every record was read", func() bool {
		reads = 0
		left := maps.Clone(missing)
		for _, m := range append(slices.Clone(r.gone), r.now...) {
			for _, v := range m.values() {
				delete(left, v)
				reads++
			}
		}
		return len(left) == 0
	})
	r.c.committed("g", int64(total))
	r.c.Logf("%d records, of which %d were read again", total, reads-total)
	for _, m := range r.c.members {
		if lost := m.said.forgotten(); len(lost) > 0 {
			r.c.Errorf("%s was forgotten by its coordinator, %d times: %s", m.name, len(lost), lost[0])
		}
	}
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	for _, f := range r.all.faults {
		r.c.Error(f)
	}
}
