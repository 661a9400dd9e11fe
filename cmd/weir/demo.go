package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/weirmq/weir/cmd/weir/client"
)

const (
	demoNodes    = 3
	demoBasePort = 19092
	demoStride   = 10               // ports of the next node
	demoPatience = 30 * time.Second // for the cluster to form
	demoStopWait = 15 * time.Second // for a node to stop by itself
)

func demoCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "run a cluster of three real nodes on this machine and show that it survives a kill",
		Description: "Starts three processes with a data folder each, produces records, kills the leader with SIGKILL in\nthe middle of it, consumes everything back and compares. Then the cluster stays up until Ctrl-C, unless --once is given.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "stop after the tour"},
			&cli.StringFlag{Name: "data", Usage: "keep the three data folders under `DIR` (default: a temporary folder, removed at the end)"},
			&cli.IntFlag{Name: "port", Value: demoBasePort, Usage: "first `PORT`; free ones are chosen if it is taken"},
			&cli.IntFlag{Name: "records", Value: 200_000, Usage: "records to produce in the tour"},
		},
		Action: func(c *cli.Context) error { return runDemo(c, stdout, stderr) },
	}
}

// demoNode is one child process and where it listens.
type demoNode struct {
	id                  int32
	client, peer, admin string
	dir, log            string
	cmd                 *exec.Cmd
}

func runDemo(c *cli.Context, stdout, stderr io.Writer) (err error) {
	dir, keep := c.String("data"), c.IsSet("data")
	if !keep {
		if dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
			return fmt.Errorf("make a folder for the demo: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // a folder left in the temporary one is no failure of the demo
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	nodes, err := placeNodes(dir, c.Int("port"))
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "starting %d nodes, data in %s\n", len(nodes), dir)
	defer func() { err = errors.Join(err, stopNodes(nodes)) }()
	for _, n := range nodes {
		if err := n.start(nodes); err != nil {
			return err
		}
	}
	tour := client.Tour{Out: stdout, Records: c.Int("records"), Patience: demoPatience, Kill: func(id int32) error { return kill(nodes, id) }, Revive: func(id int32) error { return revive(nodes, id) }}
	for _, n := range nodes {
		tour.Brokers = append(tour.Brokers, n.client)
	}
	if err := tour.Run(c.Context); err != nil {
		showLogs(stderr, nodes)
		return err
	}
	if c.Bool("once") {
		return nil
	}
	fmt.Fprintf(stdout, "\nthe cluster stays up until Ctrl-C; try, in another terminal:\n  export WEIR_BROKERS=%s\n  weir cluster info\n  weir topic create greetings -p 3\n  echo hello | weir produce greetings\n  weir consume greetings -e\n", strings.Join(tour.Brokers, ","))
	<-c.Context.Done()
	return nil
}

// placeNodes gives each node its addresses and folder.
func placeNodes(dir string, base int) ([]*demoNode, error) {
	var nodes []*demoNode
	for i := range demoNodes {
		n := &demoNode{id: int32(i + 1), dir: filepath.Join(dir, fmt.Sprintf("node-%d", i+1)), log: filepath.Join(dir, fmt.Sprintf("node-%d.log", i+1))}
		for j, addr := range []*string{&n.client, &n.peer, &n.admin} {
			free, err := freeAddress(base + i*demoStride + j)
			if err != nil {
				return nil, err
			}
			*addr = free
		}
		nodes = append(nodes, n)
	}
	return nodes, os.MkdirAll(dir, 0o755)
}

// freeAddress returns port on loopback, or another one if it is taken.
func freeAddress(port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
	}
	return l.Addr().String(), l.Close()
}

func (n *demoNode) start(all []*demoNode) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var join []string
	for _, other := range all {
		join = append(join, other.peer)
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of node %d: %w", n.id, err)
	}
	defer log.Close()
	n.cmd = exec.Command(self, "start", "--data", n.dir, "--listen", n.client, "--peer", n.peer, "--admin", n.admin,
		"--advertise", n.client, "--join", strings.Join(join, ","), "--node-id", strconv.Itoa(int(n.id)))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = childAttributes()
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	return nil
}

func byID(nodes []*demoNode, id int32) (*demoNode, error) {
	for _, n := range nodes {
		if n.id == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the demo has no node %d", id)
}

func kill(nodes []*demoNode, id int32) error {
	n, err := byID(nodes, id)
	if err != nil {
		return err
	}
	if err := n.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill node %d: %w", id, err)
	}
	_ = n.cmd.Wait() // it was killed; its exit status says so
	n.cmd = nil
	return nil
}

func revive(nodes []*demoNode, id int32) error {
	n, err := byID(nodes, id)
	if err != nil {
		return err
	}
	return n.start(nodes)
}

// stopNodes asks every node to stop, waits, and kills what does not.
func stopNodes(nodes []*demoNode) error {
	var failed error
	for _, n := range nodes {
		if n.cmd != nil {
			_ = n.cmd.Process.Signal(syscall.SIGTERM) // a node that is gone is what we want
		}
	}
	deadline := time.Now().Add(demoStopWait)
	for _, n := range nodes {
		if n.cmd == nil {
			continue
		}
		timer := time.AfterFunc(time.Until(deadline), func() { _ = n.cmd.Process.Kill() })
		if err := n.cmd.Wait(); err != nil && !timer.Stop() {
			failed = errors.Join(failed, fmt.Errorf("node %d did not stop within %s and was killed; its log is %s", n.id, demoStopWait, n.log))
		}
		timer.Stop()
	}
	return failed
}

// showLogs prints the end of each node's log, for a tour that failed.
func showLogs(w io.Writer, nodes []*demoNode) {
	const tail = 2000
	for _, n := range nodes {
		text, err := os.ReadFile(n.log)
		if err != nil {
			continue
		}
		fmt.Fprintf(w, "--- the end of the log of node %d\n%s\n", n.id, text[max(0, len(text)-tail):])
	}
}
