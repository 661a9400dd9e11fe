package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/loopback"
)

// Cluster is a set of real nodes on loopback.
type Cluster struct {
	Bin   string // the weir binary
	Dir   string // data folders and logs
	Nodes []*Node
	Extra []string // further arguments of weir start
}

// Node is one process, running or not.
type Node struct {
	ID                  int32
	Client, Peer, Admin string
	Data, Log           string
	// Joins are the peers whose cluster an empty node joins; nil for one of the first nodes.
	Joins []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and been waited for
}

// Build compiles the weir binary into dir, or returns the one named by WEIR_BIN.
func Build(dir string) (string, error) {
	if bin := os.Getenv("WEIR_BIN"); bin != "" {
		return bin, nil
	}
	bin := filepath.Join(dir, "weir")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/weirmq/weir/cmd/weir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w: %s", err, out)
	}
	return bin, nil
}

// New lays out n nodes under dir without starting them.
func New(bin, dir string, n int, extra ...string) (*Cluster, error) {
	c := &Cluster{Bin: bin, Dir: dir, Extra: extra}
	if err := c.lay(n); err != nil {
		return nil, err
	}
	return c, nil
}

// lay lays out n further nodes, with the next ids.
func (c *Cluster) lay(n int) error {
	free, err := loopback.FreeAddresses(3 * n)
	if err != nil {
		return err
	}
	for at := range slices.Chunk(free, 3) {
		id := len(c.Nodes) + 1
		c.Nodes = append(c.Nodes, &Node{
			ID: int32(id), Client: at[0], Peer: at[1], Admin: at[2],
			Data: filepath.Join(c.Dir, fmt.Sprintf("node-%d", id)), Log: filepath.Join(c.Dir, fmt.Sprintf("node-%d.log", id)),
		})
	}
	return nil
}

// Add lays out a node that is to join the cluster when it is started. It gets the next id.
func (c *Cluster) Add() (*Node, error) {
	var peers []string
	for _, o := range c.Nodes {
		if o.PID() != 0 {
			peers = append(peers, o.Peer)
		}
	}
	if err := c.lay(1); err != nil {
		return nil, err
	}
	n := c.Nodes[len(c.Nodes)-1]
	n.Joins = peers
	return n, nil
}

// Start starts every node and waits until each answers for all of them.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := c.StartNode(n); err != nil {
			return err
		}
	}
	return c.AwaitNodes(ctx, len(c.Nodes))
}

// StartNode starts one node.
func (c *Cluster) StartNode(n *Node) error {
	args := []string{"start", "--data", n.Data, "--listen", n.Client, "--peer", n.Peer, "--admin", n.Admin}
	switch {
	case n.Joins != nil:
		args = append(args, "--advertise", n.Client, "--join", strings.Join(n.Joins, ","))
	case len(c.Nodes) > 1:
		var join []string
		for _, o := range c.Nodes {
			join = append(join, o.Peer)
		}
		args = append(args, "--advertise", n.Client, "--join", strings.Join(join, ","), "--node-id", strconv.Itoa(int(n.ID)))
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.Bin, append(args, c.Extra...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return fmt.Errorf("node %d is running", n.ID)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", n.ID, err)
	}
	n.cmd, n.done = cmd, make(chan struct{})
	go n.reap(cmd, n.done)
	return nil
}

// reap waits for the process; it ends with it. done is closed afterwards.
func (n *Node) reap(cmd *exec.Cmd, done chan struct{}) {
	_ = cmd.Wait() // how it ended is read from ProcessState
	n.mu.Lock()
	n.cmd = nil
	n.mu.Unlock()
	close(done)
}

// PID returns the process id, or 0 when the node does not run.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Signal sends a signal; to a node that does not run it is an error.
func (n *Node) Signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return fmt.Errorf("node %d does not run", n.ID)
	}
	return n.cmd.Process.Signal(s)
}

// Kill sends SIGKILL and waits for the end of the process.
func (n *Node) Kill() error { return n.end(syscall.SIGKILL, 10*time.Second) }

// Stop sends SIGTERM and waits for the end of the process.
func (n *Node) Stop() error { return n.end(syscall.SIGTERM, 60*time.Second) }

func (n *Node) end(s syscall.Signal, patience time.Duration) error {
	n.mu.Lock()
	done := n.done
	n.mu.Unlock()
	if err := n.Signal(s); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("node %d did not end within %s of %v", n.ID, patience, s)
	}
}

// Close kills what still runs.
func (c *Cluster) Close() error {
	var failed error
	for _, n := range c.Nodes {
		if n.PID() != 0 {
			failed = errors.Join(failed, n.Kill())
		}
	}
	return failed
}

// Brokers lists the client addresses of all nodes.
func (c *Cluster) Brokers() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Client)
	}
	return out
}

// Node returns the node with that broker id.
func (c *Cluster) Node(id int32) *Node { return c.Nodes[id-1] }

// Client makes a franz-go client with the settings every client of ours has. Metadata
// are refreshed often: a member of the consumer protocol that has nothing to commit goes
// on dialling a coordinator that is dead until they do not list it any more.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{kgo.SeedBrokers(c.Brokers()...), kgo.MetadataMinAge(250 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DialTimeout(time.Second)}
	return kgo.NewClient(append(base, opts...)...)
}

// poll runs check every 20 ms until it holds or ctx ends.
func poll(ctx context.Context, what string, check func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}

// Metadata asks for brokers, controller and the given topics, past the cache of kadm.
func Metadata(ctx context.Context, cl *kgo.Client, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	return req.RequestWith(ctx, cl)
}

// AwaitNodes waits until every running node lists want live nodes.
func (c *Cluster) AwaitNodes(ctx context.Context, want int) error {
	for _, n := range c.Nodes {
		if n.PID() == 0 {
			continue
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Client), kgo.MetadataMinAge(10*time.Millisecond), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
		if err != nil {
			return err
		}
		err = poll(ctx, fmt.Sprintf("await %d nodes at node %d", want, n.ID), func() error {
			m, err := Metadata(ctx, cl)
			if err == nil && len(m.Brokers) != want {
				err = fmt.Errorf("it lists %d", len(m.Brokers))
			}
			return err
		})
		cl.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Partitions returns the partitions of a topic as metadata shows them now.
func (c *Cluster) Partitions(ctx context.Context, cl *kgo.Client, topic string) ([]kadm.PartitionDetail, error) {
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := topics[topic].Err; err != nil {
		return nil, err
	}
	return topics[topic].Partitions.Sorted(), nil
}

// AwaitISR waits until every partition of topic has want replicas in sync.
func (c *Cluster) AwaitISR(ctx context.Context, cl *kgo.Client, topic string, want int) error {
	return poll(ctx, fmt.Sprintf("await %d replicas of %s in sync", want, topic), func() error {
		parts, err := c.Partitions(ctx, cl, topic)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if len(p.ISR) < want || p.Leader < 0 {
				return fmt.Errorf("partition %d: leader %d, in sync %v", p.Partition, p.Leader, p.ISR)
			}
		}
		return nil
	})
}
