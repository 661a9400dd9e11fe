package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	membersTopic      = "members"
	membersPartitions = 3
	membersTimeout    = 8 * time.Minute
)

// stream is idempotent producers at work: one for each partition, one record after the other.
type stream struct {
	stop  context.CancelFunc
	wg    sync.WaitGroup
	acked [membersPartitions]int
	errs  [membersPartitions]error
}

func (c *Cluster) stream(ctx context.Context) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{stop: cancel}
	for p := range membersPartitions {
		cl, err := c.Client(kgo.DefaultProduceTopic(membersTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
			kgo.ProduceRequestTimeout(2*time.Second), kgo.RecordRetries(1<<30), kgo.UnknownTopicRetries(-1))
		if err != nil {
			return nil, err
		}
		s.wg.Go(func() {
			defer cl.Close()
			for i := 0; ctx.Err() == nil; i++ {
				// It is not given up when ctx ends: what is on its way is either read or not.
				err := cl.ProduceSync(context.Background(), &kgo.Record{Partition: int32(p), Value: []byte(strconv.Itoa(i))}).FirstErr()
				if err != nil {
					s.errs[p] = fmt.Errorf("record %d of partition %d: %w", i, p, err)
					return
				}
				s.acked[p] = i + 1
			}
		})
	}
	return s, nil
}

// end stops the producers and returns how many records each had acknowledged.
func (s *stream) end(t *testing.T) [membersPartitions]int {
	t.Helper()
	s.stop()
	s.wg.Wait()
	if err := errors.Join(s.errs[:]...); err != nil {
		t.Fatal(err)
	}
	return s.acked
}

// readAll reads what was acknowledged: all of it, in order, once.
func (c *Cluster) readAll(ctx context.Context, t *testing.T, acked [membersPartitions]int) {
	t.Helper()
	cl, err := c.Client(kgo.ConsumeTopics(membersTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got [membersPartitions]int
	for got != acked {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %v of %v records", got, acked)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if want := strconv.Itoa(got[r.Partition]); string(r.Value) != want || got[r.Partition] == acked[r.Partition] {
				t.Fatalf("partition %d has %s where %s should be, of %d", r.Partition, r.Value, want, acked[r.Partition])
			}
			got[r.Partition]++
		}
	}
}

// quorum is what the cluster says of its voters and of the nodes without a vote.
func quorum(ctx context.Context, t *testing.T, c *Cluster, brokers string) (voters, others []int32) {
	t.Helper()
	code, text := weir(ctx, t, c, "cluster", "quorum", "-o", "json", "-b", brokers)
	var rows []struct {
		Node  int32 `json:"node"`
		Votes bool  `json:"votes"`
		Lag   int64 `json:"lag"`
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&rows); err != nil || code != 0 {
		t.Fatalf("cluster quorum: exit code %d, %v: %s", code, err, text)
	}
	for _, r := range rows {
		if r.Votes {
			voters = append(voters, r.Node)
		} else {
			others = append(others, r.Node)
		}
	}
	slices.Sort(voters)
	slices.Sort(others)
	return voters, others
}

// TestMembersChange changes every node of a cluster but one while producers work: nodes join and
// are given votes, a voter is lost with its folder and replaced, one that lives leaves. Nothing
// that was acknowledged is missing, and nothing came twice.
func TestMembersChange(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), membersTimeout)
	defer cancel()
	c := startThree(ctx, t)
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, membersPartitions, 3, nil, membersTopic); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	work, err := c.stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer work.stop()

	var brokers string
	expect := func(code int, says string, args ...string) {
		t.Helper()
		got, text := weir(ctx, t, c, append(args, "-b", brokers)...)
		if got != code || !strings.Contains(text, says) {
			t.Fatalf("weir %s: exit code %d, want %d; %q lacks %q", strings.Join(args, " "), got, code, text, says)
		}
	}
	join := func(live int) {
		t.Helper()
		n, err := c.Add()
		if err == nil {
			err = c.StartNode(n)
		}
		if err == nil {
			err = c.AwaitNodes(ctx, live)
		}
		if err != nil {
			t.Fatal(err)
		}
		var up []string
		for _, n := range c.Nodes {
			if n.PID() != 0 {
				up = append(up, n.Client)
			}
		}
		brokers = strings.Join(up, ",")
	}
	are := func(wantVoters, wantOthers []int32) {
		t.Helper()
		if voters, others := quorum(ctx, t, c, brokers); !slices.Equal(voters, wantVoters) || !slices.Equal(others, wantOthers) {
			t.Fatalf("voters %v, others %v; want %v, %v", voters, others, wantVoters, wantOthers)
		}
	}
	join(4)
	join(5)
	are([]int32{1, 2, 3}, []int32{4, 5})
	expect(0, "node 4 votes", "cluster", "quorum", "add", "4")
	expect(0, "node 5 votes", "cluster", "quorum", "add", "5")
	are([]int32{1, 2, 3, 4, 5}, nil)

	lost := c.Node(2)
	if err := lost.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(lost.Data); err != nil {
		t.Fatal(err)
	}
	join(5)
	expect(0, "node 6 votes", "cluster", "quorum", "replace", "2", "--with", "6", "--yes", "--wait", "1m")
	are([]int32{1, 3, 4, 5, 6}, []int32{2})
	expect(1, "move them to other nodes first", "cluster", "remove", "2", "--yes")
	expect(0, "", "partition", "move", "--from", "2", "--wait", "--timeout", "2m")
	expect(0, "node 2 is removed", "cluster", "remove", "2", "--yes")

	leaves := c.Node(1)
	expect(1, "node 1 votes", "cluster", "remove", "1", "--yes")
	join(6)
	expect(0, "node 1 votes no more", "cluster", "quorum", "replace", "1", "--with", "7", "--yes", "--wait", "1m")
	expect(0, "", "partition", "move", "--from", "1", "--wait", "--timeout", "2m")
	expect(0, "node 1 is removed", "cluster", "remove", "1", "--yes")
	if err := poll(ctx, "the removed node ends", func() error {
		if leaves.PID() != 0 {
			return errors.New("it runs")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(leaves.Log); err != nil || !strings.Contains(string(log), "node 1 was removed from cluster") {
		t.Errorf("the log of the removed node does not say why it ended (%v)", err)
	}
	if err := c.AwaitNodes(ctx, 5); err != nil {
		t.Fatal(err)
	}
	are([]int32{3, 4, 5, 6, 7}, nil)
	acked := work.end(t)
	t.Logf("%v records acknowledged", acked)
	c.readAll(ctx, t, acked)
}
