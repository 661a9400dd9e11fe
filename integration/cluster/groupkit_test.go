package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tests of groups at scale assert what must be so and report times without judging
// them. They are short unless these variables ask for more; make groups sets them.
func scaleOf(t *testing.T, name string, short int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number above 0", name, s)
	}
	return n
}

// timeOf is scaleOf for a time.
func timeOf(t *testing.T, name string, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q is not a time", name, s)
	}
	return d
}

// startThree starts three nodes that end with the test; their logs are shown if it fails.
func startThree(ctx context.Context, t *testing.T, extra ...string) *Cluster {
	t.Helper()
	return startNodes(ctx, t, 3, extra...)
}

// startNodes is startThree with another number of nodes.
func startNodes(ctx context.Context, t *testing.T, n int, extra ...string) *Cluster {
	t.Helper()
	dir := t.TempDir()
	bin, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(bin, dir, n, extra...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			(&job{Cluster: c, t: t}).showLogs()
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// groupRig is a cluster of three with one topic.
type groupRig struct {
	*Cluster
	t   *testing.T
	ctx context.Context
	cl  *kgo.Client
}

const groupTopic = "groups"

func newGroupRig(t *testing.T, patience time.Duration, partitions int32, settings ...string) *groupRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	var extra []string
	for _, s := range settings {
		extra = append(extra, "-c", s)
	}
	c := startThree(ctx, t, extra...)
	r := &groupRig{Cluster: c, t: t, ctx: ctx}
	var err error
	if r.cl, err = c.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cl.Close)
	if _, err := kadm.NewClient(r.cl).CreateTopic(ctx, partitions, 3, nil, groupTopic); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitISR(ctx, r.cl, groupTopic, 3); err != nil {
		t.Fatal(err)
	}
	r.awaitTopic(int(partitions))
	return r
}

// awaitTopic waits until every node knows the topic.
func (r *groupRig) awaitTopic(partitions int) {
	r.t.Helper()
	for _, n := range r.Nodes {
		r.await(fmt.Sprintf("node %d knows the topic", n.ID), func() error {
			w, err := dialWire(n.Client)
			if err != nil {
				return err
			}
			defer w.Close()
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 9
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = kmsg.StringPtr(groupTopic)
			req.Topics = append(req.Topics, topic)
			resp, err := w.ask(req)
			if err != nil {
				return err
			}
			if got := len(resp.(*kmsg.MetadataResponse).Topics[0].Partitions); got != partitions {
				return fmt.Errorf("%d partitions", got)
			}
			return nil
		})
	}
}

// await waits for a condition as long as the test may last.
func (r *groupRig) await(what string, check func() error) {
	r.t.Helper()
	if err := poll(r.ctx, what, check); err != nil {
		r.t.Fatal(err)
	}
}

// topicID is the id of the topic.
func (r *groupRig) topicID() [16]byte {
	r.t.Helper()
	m, err := Metadata(r.ctx, r.cl, groupTopic)
	if err != nil {
		r.t.Fatal(err)
	}
	return m.Topics[0].TopicID
}

// cpu is the user and system time that the nodes have taken since they started.
func (r *groupRig) cpu() (all time.Duration, each []time.Duration) {
	r.t.Helper()
	for _, n := range r.Nodes {
		d, err := cpuOf(n.PID())
		if err != nil {
			r.t.Fatal(err)
		}
		all, each = all+d, append(each, d)
	}
	return all, each
}

// wireConn is a bare connection of a client that speaks the protocol and does nothing by itself.
type wireConn struct {
	net.Conn
	r    *bufio.Reader
	form *kmsg.RequestFormatter
	corr int32
}

// wirePatience bounds one request on a wireConn.
const wirePatience = 2 * time.Minute

func dialWire(addr string) (*wireConn, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: c, r: bufio.NewReader(c), form: kmsg.NewRequestFormatter(kmsg.FormatterClientID("scale"))}, nil
}

// ask sends a request of the version that it names and returns its answer.
func (w *wireConn) ask(req kmsg.Request) (kmsg.Response, error) {
	return w.askWithin(req, wirePatience)
}

func (w *wireConn) askWithin(req kmsg.Request, patience time.Duration) (kmsg.Response, error) {
	w.corr++
	if err := w.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := w.Write(w.form.AppendRequest(nil, req, w.corr)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(w.r, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.r, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	skip := 4
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		skip = 5 // no tags
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != w.corr {
		return nil, fmt.Errorf("answer %d to request %d", got, w.corr)
	}
	if err := resp.ReadFrom(body[skip:]); err != nil {
		return nil, fmt.Errorf("answer to request of key %d: %w", req.Key(), err)
	}
	return resp, nil
}

// coordinatorOf asks one node who coordinates a group.
func coordinatorOf(w *wireConn, group string) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey = 3, group
	resp, err := w.askWithin(req, time.Second)
	if err != nil {
		return 0, err
	}
	f := resp.(*kmsg.FindCoordinatorResponse)
	return f.NodeID, kerr.ErrorForCode(f.ErrorCode)
}

// coordinator finds the node that coordinates a group.
func (r *groupRig) coordinator(group string) (*Node, error) {
	failed := errors.New("no node runs")
	for _, n := range r.Nodes {
		w, err := dialWire(n.Client)
		if err != nil {
			failed = err
			continue
		}
		id, err := coordinatorOf(w, group)
		_ = w.Close()
		if err == nil {
			return r.Node(id), nil
		}
		failed = err
	}
	return nil, failed
}

// groupCommit is a commit of one offset of the topic's first partition.
func groupCommit(group string, id [16]byte, member string, epoch int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, group, member, epoch
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = groupTopic, id
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 1
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// commitAs commits one offset. After an error the connection is of no more use if the answer
// may still come.
func commitAs(w *wireConn, patience time.Duration, req *kmsg.OffsetCommitRequest) error {
	resp, err := w.askWithin(req, patience)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}
