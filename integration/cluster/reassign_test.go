package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/seeds"
)

const (
	movingTopic      = "moving"
	movingPartitions = 6
	movingNodes      = 5
	// movingBytes are in each partition before the first move, so that copies take a while.
	movingBytes  = 4 << 20
	movingRecord = 16 << 10
	movingEvery  = 2 * time.Millisecond
)

// TestReassign moves all partitions of a topic to other nodes and back while idempotent
// producers write, kills a node that gets new replicas, and stops a leader in order, both in
// the middle of a move. Everything that was acknowledged must be there once, in order, the
// replicas where they were asked for, and nothing left of the old ones. WEIR_TRIALS sets how
// often.
func TestReassign(t *testing.T) {
	rounds := scaleOf(t, "WEIR_TRIALS", 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rounds+2)*2*time.Minute)
	defer cancel()
	m := &moving{t: t, ctx: ctx, rnd: rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))}
	m.Cluster = startNodes(ctx, t, movingNodes)
	m.open()
	defer m.cl.Close()
	m.fill()
	m.write()
	for round := range rounds {
		m.move()
		m.hurt(round)
		m.settle()
	}
	m.stop()
	m.readBack()
	m.cleared()
}

// moving is a topic on the move with its producers.
type moving struct {
	*Cluster
	t      *testing.T
	ctx    context.Context
	rnd    *rand.Rand
	cl     *kgo.Client
	adm    *kadm.Client
	target [movingPartitions][]int32

	working context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex
	acked [movingPartitions][]string // in order; guarded by mu
}

func (m *moving) open() {
	m.t.Helper()
	var err error
	if m.cl, err = m.Client(); err != nil {
		m.t.Fatal(err)
	}
	m.adm = kadm.NewClient(m.cl)
	if _, err := m.adm.CreateTopic(m.ctx, movingPartitions, 3, nil, movingTopic); err != nil {
		m.t.Fatal(err)
	}
	if err := m.AwaitISR(m.ctx, m.cl, movingTopic, 3); err != nil {
		m.t.Fatal(err)
	}
}

// producer is an idempotent one that waits for all replicas and never gives up.
func (m *moving) producer() *kgo.Client {
	m.t.Helper()
	cl, err := m.Client(kgo.DefaultProduceTopic(movingTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		m.t.Fatal(err)
	}
	return cl
}

// fill writes what the first moves have to copy.
func (m *moving) fill() {
	m.t.Helper()
	cl := m.producer()
	defer cl.Close()
	text := bytes.Repeat([]byte("x"), movingRecord)
	for p := range int32(movingPartitions) {
		for n := range movingBytes / movingRecord {
			id := fmt.Sprintf("fill-%d", n)
			m.send(cl, p, id, text)
		}
	}
	if err := cl.Flush(m.ctx); err != nil {
		m.t.Fatal(err)
	}
}

// send hands a record over; it is noted when it is acknowledged.
func (m *moving) send(cl *kgo.Client, p int32, id string, value []byte) {
	cl.Produce(m.ctx, &kgo.Record{Partition: p, Key: []byte(id), Value: value}, func(r *kgo.Record, err error) {
		if err != nil {
			if m.ctx.Err() == nil {
				m.t.Errorf("produce %s to partition %d: %v", id, p, err)
			}
			return
		}
		m.mu.Lock()
		m.acked[p] = append(m.acked[p], id)
		m.mu.Unlock()
	})
}

// write sets a producer to work on every partition, each of which has had its first answer: a
// client whose very first request ends with its connection gives up.
func (m *moving) write() {
	m.t.Helper()
	working, cancel := context.WithCancel(m.ctx)
	m.working = cancel
	for p := range int32(movingPartitions) {
		cl := m.producer()
		m.send(cl, p, "first", nil)
		if err := cl.Flush(m.ctx); err != nil {
			m.t.Fatal(err)
		}
		m.workers.Go(func() { // ends with working
			defer cl.Close()
			tick := time.NewTicker(movingEvery)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-tick.C:
					m.send(cl, p, strconv.Itoa(n), []byte("v"))
				case <-working.Done():
					if err := cl.Flush(m.ctx); err != nil {
						m.t.Errorf("flush partition %d: %v", p, err)
					}
					return
				}
			}
		})
	}
}

func (m *moving) stop() {
	m.working()
	m.workers.Wait()
}

// move asks for other replicas of all partitions: three nodes, drawn for each.
func (m *moving) move() {
	m.t.Helper()
	req := kadm.AlterPartitionAssignmentsReq{}
	for p := range m.target {
		for before := m.target[p]; ; {
			m.target[p] = nil
			for _, i := range m.rnd.Perm(movingNodes)[:3] {
				m.target[p] = append(m.target[p], int32(i+1))
			}
			if !slices.Equal(before, m.target[p]) {
				break
			}
		}
		req.Assign(movingTopic, int32(p), m.target[p])
	}
	err := poll(m.ctx, "begin to move", func() error {
		got, err := m.adm.AlterPartitionAssignments(m.ctx, req)
		return errors.Join(err, got.Error())
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// ongoing asks what is on the move.
func (m *moving) ongoing() ([]kmsg.ListPartitionReassignmentsResponseTopicPartition, error) {
	resp, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(m.ctx, m.cl)
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("error %d", resp.ErrorCode)
	}
	var out []kmsg.ListPartitionReassignmentsResponseTopicPartition
	for _, t := range resp.Topics {
		out = append(out, t.Partitions...)
	}
	return out, nil
}

// hurt kills a node that is getting a replica in even rounds, and stops a leader in order in
// odd ones, as long as something is on the move, and starts it again.
func (m *moving) hurt(round int) {
	m.t.Helper()
	moves, err := m.ongoing()
	if err != nil {
		m.t.Fatal(err)
	}
	var victim *Node
	end, how := (*Node).Kill, "kill"
	for _, p := range moves {
		if round%2 == 0 && len(p.AddingReplicas) > 0 {
			victim = m.Node(p.AddingReplicas[0])
			break
		}
	}
	if round%2 == 1 && len(moves) > 0 {
		parts, err := m.Partitions(m.ctx, m.cl, movingTopic)
		if err != nil {
			m.t.Fatal(err)
		}
		if l := parts[moves[0].Partition].Leader; l > 0 {
			victim, end, how = m.Node(l), (*Node).Stop, "stop"
		}
	}
	if victim == nil {
		m.t.Logf("round %d: %d partitions were on the move, and nobody to hurt", round, len(moves))
		return
	}
	m.t.Logf("round %d: %s node %d with %d partitions on the move", round, how, victim.ID, len(moves))
	if err := errors.Join(end(victim), m.StartNode(victim)); err != nil {
		m.t.Fatal(err)
	}
}

// settle waits until all replicas are where they were asked for, and in sync.
func (m *moving) settle() {
	m.t.Helper()
	began := time.Now()
	err := poll(m.ctx, "await the end of the moves", func() error {
		if moves, err := m.ongoing(); err != nil || len(moves) > 0 {
			return errors.Join(err, fmt.Errorf("%d partitions are on the move", len(moves)))
		}
		parts, err := m.Partitions(m.ctx, m.cl, movingTopic)
		if err != nil {
			return err
		}
		for i, p := range parts {
			if !slices.Equal(p.Replicas, m.target[i]) || len(p.ISR) != len(p.Replicas) || p.Leader < 0 {
				return fmt.Errorf("partition %d is on %v, with %v in sync and leader %d; want %v", i, p.Replicas, p.ISR, p.Leader, m.target[i])
			}
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Logf("all replicas are where they were asked for after %s", time.Since(began).Round(time.Millisecond))
}

// readBack compares what a client that knows nothing reads with what was acknowledged.
func (m *moving) readBack() {
	m.t.Helper()
	from := map[int32]kgo.Offset{}
	for p := range int32(movingPartitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	cl, err := m.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{movingTopic: from}))
	if err != nil {
		m.t.Fatal(err)
	}
	defer cl.Close()
	ends, err := m.adm.ListEndOffsets(m.ctx, movingTopic)
	if err != nil || ends.Error() != nil {
		m.t.Fatal(err, ends.Error())
	}
	var got [movingPartitions][]string
	left := movingPartitions
	for left > 0 {
		fetches := cl.PollFetches(m.ctx)
		if err := m.ctx.Err(); err != nil {
			m.t.Fatalf("read back: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], string(r.Key))
			if end, _ := ends.Lookup(movingTopic, r.Partition); r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	total := 0
	for p := range got {
		total += len(got[p])
		if !slices.Equal(got[p], m.acked[p]) {
			m.t.Errorf("partition %d holds %d records, and %d were acknowledged: the first difference is at %d", p, len(got[p]), len(m.acked[p]), firstDifference(got[p], m.acked[p]))
		}
	}
	m.t.Logf("%d records are there once and in order", total)
}

func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// cleared waits until each node has the folders of the partitions that it hosts and no others.
func (m *moving) cleared() {
	m.t.Helper()
	err := poll(m.ctx, "await that the old folders are gone", func() error {
		for _, n := range m.Nodes {
			found, err := filepath.Glob(filepath.Join(n.Data, movingTopic+"-*"))
			if err != nil {
				return err
			}
			var want []string
			for p, replicas := range m.target {
				if slices.Contains(replicas, n.ID) {
					want = append(want, filepath.Join(n.Data, fmt.Sprintf("%s-%d", movingTopic, p)))
				}
			}
			if slices.Sort(found); !slices.Equal(found, want) {
				return fmt.Errorf("node %d has the folders %v, want %v", n.ID, found, want)
			}
		}
		return nil
	})
	if err != nil {
		m.t.Error(err)
	}
}
