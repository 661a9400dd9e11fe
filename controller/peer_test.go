package controller

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/fsm"
)

func TestPrefaceRoundTrip(t *testing.T) {
	for _, p := range []Preface{
		{Kind: KindForm, Folder: [16]byte{1}},
		{Kind: KindRaft, ClusterID: "c", NodeID: 3, Folder: [16]byte{2}},
		{Kind: KindControl, ClusterID: strings.Repeat("x", clusterIDSizeMax), NodeID: 1 << 30, BrokerEpoch: 1 << 40},
		{Kind: KindFeed, ClusterID: "c", NodeID: 1, BrokerEpoch: 7},
	} {
		var b bytes.Buffer
		if err := writePreface(&b, p); err != nil {
			t.Fatal(err)
		}
		b.WriteString("the first bytes of what follows")
		got, err := readPreface(&b)
		if err != nil || got != p {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
		if !strings.HasPrefix(b.String(), "the first") {
			t.Errorf("the preface of %v took bytes that follow it; left: %q", p.Kind, b.String())
		}
	}
}

func FuzzPreface(f *testing.F) {
	var b bytes.Buffer
	_ = writePreface(&b, Preface{Kind: KindFeed, ClusterID: "c", NodeID: 1, BrokerEpoch: 7})
	f.Add(b.Bytes())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := readPreface(bytes.NewReader(p))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writePreface(&again, got); err != nil || !bytes.HasPrefix(p, again.Bytes()) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", p, got, again.Bytes())
		}
	})
}

// kafkaRequest is an ApiVersions request as a Kafka client sends it.
func kafkaRequest() []byte {
	body := []byte{0, 18, 0, 0, 0, 0, 0, 1, 0, 4, 't', 'e', 's', 't'}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// logLines collects what a logger writes.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testPeers starts a peer listener of node 1 in cluster "c" that echoes on every kind.
func testPeers(t *testing.T, log io.Writer) *peers {
	me := answer{clusterID: "c", nodeID: 1, folder: [16]byte{1}}
	n := newNode(Config{Logger: hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})})
	n.present(formReply{folder: me.folder, nodeID: me.nodeID, formed: &formation{clusterID: "c"}})
	ps := newPeers(listen(t, "127.0.0.1:0"), n.log, n.introduction, n.admit)
	for _, k := range []Kind{KindRaft, KindFeed} {
		ps.handle(k, func(_ Preface, c net.Conn) {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		})
	}
	ps.start()
	t.Cleanup(func() { ps.close(); n.cancel() })
	return ps
}

func TestGarbageOnThePeerPort(t *testing.T) {
	for _, tc := range []struct {
		name, looks string
		send        []byte
	}{
		{"Kafka client", "Kafka client", kafkaRequest()},
		{"HTTP", "HTTP", []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"TLS", "TLS", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
		{"long preface", "longer than", []byte{'W', 'E', 'I', 'R', 1, 2, 0xff, 0xff}},
		{"preface of another version", "version 9", []byte{'W', 'E', 'I', 'R', 9, 2, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log logLines
			ps := testPeers(t, &log)
			c := dialRaw(t, ps)
			if _, err := c.Write(tc.send); err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(c) // returns when the other side closes
			eventually(t, "a log line", func() bool { return strings.Contains(log.String(), tc.looks) })
			if lines := strings.Count(log.String(), "\n"); lines != 1 {
				t.Errorf("%d log lines, want 1: %s", lines, log.String())
			}
			if _, err := dialPeer(context.Background(), ps.listener.Addr().String(), raftPreface(2), anyone); err != nil {
				t.Errorf("the port does not serve after garbage: %v", err)
			}
		})
	}
}

func dialRaw(t *testing.T, ps *peers) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ps.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return c
}

func raftPreface(id fsm.BrokerID) Preface {
	return Preface{Kind: KindRaft, ClusterID: "c", NodeID: id, Folder: [16]byte{byte(id)}}
}

func anyone(answer) error { return nil }

func TestHalfAPrefaceIsNotAwaitedForEver(t *testing.T) {
	var log logLines
	me := func() answer { return answer{clusterID: "c"} }
	ps := newPeers(listen(t, "127.0.0.1:0"), hclog.New(&hclog.LoggerOptions{Output: &log}), me, func(Preface) *RefusedError { return nil })
	ps.patience = 30 * time.Millisecond
	ps.start()
	defer ps.close()
	c := dialRaw(t, ps)
	if _, err := c.Write([]byte(prefaceMagic)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("half a preface: %v, want the connection closed", err)
	}
	eventually(t, "a log line", func() bool { return strings.Contains(log.String(), "read the preface") })
}

func TestPrefaceIsJudged(t *testing.T) {
	ps := testPeers(t, io.Discard)
	for _, tc := range []struct {
		name string
		p    Preface
		want RefusalCode
	}{
		{"member", raftPreface(2), accepted},
		{"foreign cluster", Preface{Kind: KindRaft, ClusterID: "other", NodeID: 2}, RefusedCluster},
		{"no cluster", Preface{Kind: KindRaft, NodeID: 2}, RefusedCluster},
		{"no node id", Preface{Kind: KindRaft, ClusterID: "c"}, RefusedNode},
		{"this node's id in another folder", Preface{Kind: KindRaft, ClusterID: "c", NodeID: 1, Folder: [16]byte{9}}, RefusedNode},
		{"unknown kind", Preface{Kind: 9, ClusterID: "c", NodeID: 2}, RefusedKind},
		{"kind without handler yet", Preface{Kind: KindControl, ClusterID: "c", NodeID: 2}, RefusedNotReady},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := dialPeer(context.Background(), ps.listener.Addr().String(), tc.p, anyone)
			var refused *RefusedError
			switch {
			case err == nil && tc.want == accepted:
				_ = c.Close()
			case !errors.As(err, &refused) || refused.Code != tc.want || refused.Sentence == "":
				t.Fatalf("got %v, want refusal %d with a sentence", err, tc.want)
			}
		})
	}
}

func TestDialledPeerIsJudged(t *testing.T) {
	ps := testPeers(t, io.Discard)
	wrong := errors.New("wrong node")
	_, err := dialPeer(context.Background(), ps.listener.Addr().String(), raftPreface(2), func(a answer) error {
		if a.nodeID != 1 || a.clusterID != "c" || a.folder != [16]byte{1} {
			t.Errorf("the answer says %+v", a)
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Fatalf("got %v, want the dialler's verdict", err)
	}
}

func TestPrefacingConnectionsAreBounded(t *testing.T) {
	ps := testPeers(t, io.Discard)
	for range prefacingMax {
		dialRaw(t, ps) // says nothing
	}
	eventually(t, "every place taken", func() bool { return len(ps.prefacing) == prefacingMax })
	if _, err := dialRaw(t, ps).Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !isReset(err) {
		t.Fatalf("one silent connection too many reads %v, want it closed", err)
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

// TestRaftPortFedWithGarbage sends Kafka's bytes after a valid preface of kind raft, into
// Raft's own decoder, and expects the cluster to go on.
func TestRaftPortFedWithGarbage(t *testing.T) {
	c := newCluster(t, 3)
	c.openAll()
	leader := c.leader()
	for _, tn := range c.nodes {
		id := leader.node.Identity()
		conn, err := dialPeer(context.Background(), tn.addr, Preface{Kind: KindRaft, ClusterID: id.ClusterID, NodeID: id.NodeID, Folder: id.Folder}, anyone)
		if err != nil {
			t.Fatalf("dial %s: %v", tn.addr, err)
		}
		for range 3 {
			if _, err := conn.Write(kafkaRequest()); err != nil {
				break // closed already
			}
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}
	c.registerAll()
}
