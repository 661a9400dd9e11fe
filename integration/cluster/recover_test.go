package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRecoverFromALostMajority loses two of three nodes with their folders, recovers the
// third offline, and reads and writes again. A lost node that comes back with an empty
// folder is told what it is.
func TestRecoverFromALostMajority(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := startThree(ctx, t)
	last := c.Node(3)
	writeBefore(ctx, t, c, last)

	expect := func(what string, code int, says string, args ...string) {
		t.Helper()
		got, text := weir(ctx, t, c, args...)
		if got != code || !strings.Contains(text, says) {
			t.Fatalf("%s: exit code %d, want %d; %q lacks %q", what, got, code, text, says)
		}
	}
	expect("a node that runs", 1, "stop the node first", "recover", "--data", last.Data, "--yes")
	for _, n := range c.Nodes {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if n != last {
			if err := os.RemoveAll(n.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("without --yes", 2, "1 have a replica on the nodes that stay which holds every acknowledged record", "recover", "--data", last.Data)
	expect("another node", 1, "is not among the nodes to keep", "recover", "--data", last.Data, "--keep", "1", "--yes")
	expect("the last node", 0, "start node 3 as before", "recover", "--data", last.Data, "--yes")

	if err := c.StartNode(last); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitNodes(ctx, 1); err != nil {
		t.Fatal(err)
	}
	writeAndReadAfter(ctx, t, c)
	if log, err := os.ReadFile(last.Log); err != nil || !strings.Contains(string(log), "recovered from the loss of its majority") {
		t.Errorf("the log of the node does not say that it was recovered (%v)", err)
	}

	wiped := c.Node(1)
	if err := c.StartNode(wiped); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, "the wiped node ends", func() error {
		if wiped.PID() != 0 {
			return errors.New("it runs")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(wiped.Log); err != nil || !strings.Contains(string(log), "does not get its old identity back") {
		t.Errorf("the log of the wiped node does not say why it ended (%v)", err)
	}
}

const (
	recoverTopic  = "kept"
	recoverBefore = 200
	recoverAfter  = 20
)

// weir runs a command and returns its exit code with all that it printed.
func weir(ctx context.Context, t *testing.T, c *Cluster, args ...string) (int, string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, c.Bin, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := 0
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(out)
}

// writeBefore writes the first records and waits until the last node has the metadata of a
// full ISR.
func writeBefore(ctx context.Context, t *testing.T, c *Cluster, last *Node) {
	t.Helper()
	cl, err := c.Client(kgo.DefaultProduceTopic(recoverTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 3, nil, recoverTopic); err != nil {
		t.Fatal(err)
	}
	writeRecords(ctx, t, cl, 0, recoverBefore)
	if err := poll(ctx, "the last node knows of the ISR", func() error {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(recoverTopic)
		req.Topics = append(req.Topics, rt)
		m, err := req.RequestWith(ctx, cl.Broker(int(last.ID)))
		if err != nil {
			return err
		}
		if p := m.Topics[0].Partitions; len(p) != 1 || len(p[0].ISR) != 3 {
			return fmt.Errorf("it shows %+v", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func writeRecords(ctx context.Context, t *testing.T, cl *kgo.Client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatalf("write record %d: %v", i, err)
		}
	}
}

// writeAndReadAfter lowers the minimum to the one replica that is left, writes more records,
// and reads all of them.
func writeAndReadAfter(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	cl, err := c.Client(kgo.DefaultProduceTopic(recoverTopic), kgo.ConsumeTopics(recoverTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	one := "1"
	res, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: &one}}, recoverTopic)
	if err != nil || res[0].Err != nil {
		t.Fatalf("lower min.insync.replicas: %v, %v", err, res)
	}
	writeRecords(ctx, t, cl, recoverBefore, recoverBefore+recoverAfter)
	for want := 0; want < recoverBefore+recoverAfter; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("only %d records are read back", want)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(want) {
				t.Fatalf("record %d is %q", want, r.Value)
			}
			want++
		})
	}
}
