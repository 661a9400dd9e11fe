package controller

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestServerIDRoundTrip(t *testing.T) {
	id := serverID(42, [16]byte{0xab, 15: 1})
	if n, folder, ok := parseServerID(id); !ok || n != 42 || folder != [16]byte{0xab, 15: 1} {
		t.Fatalf("%s comes back as %d, %x, %v", id, n, folder, ok)
	}
	for _, bad := range []raft.ServerID{"", "1", "1.", "x." + id[3:], "1.zz", id + "00"} {
		if _, _, ok := parseServerID(bad); ok {
			t.Errorf("%q was taken for a server id", bad)
		}
	}
}

// TestHeartbeatsTakeNoFastPath: a heartbeat must reach Raft's main loop like any other call,
// although Raft asks for a handler beside it.
func TestHeartbeatsTakeNoFastPath(t *testing.T) {
	self := serverID(1, [16]byte{1})
	stream := newRaftStream(self, func(context.Context, raft.ServerID) (net.Conn, error) {
		return nil, errors.New("there is nobody else")
	})
	tr := newTransport(stream, newReach(newLeadership(), nil), hclog.NewNullLogger())
	defer func() {
		_ = tr.Close()
		tr.CloseStreams()
		tr.pusher.close()
	}()
	tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("the fast path was taken") })
	done := make(chan error, 1)
	go func() {
		req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(self), Addr: []byte(self)}, Term: 7}
		done <- tr.AppendEntries(self, raft.ServerAddress(self), req, &raft.AppendEntriesResponse{})
	}()
	rpc := <-tr.Consumer()
	if got, ok := rpc.Command.(*raft.AppendEntriesRequest); !ok || got.Term != 7 {
		t.Fatalf("the main loop got %+v", rpc.Command)
	}
	rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if p, err := tr.AppendEntriesPipeline(self, raft.ServerAddress(self)); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("Raft may pipeline: %v, %v", p, err)
	}
}

// TestStreamEndsItsCalls: neither a dial nor a read waits for a peer that does not answer once
// the stream is closed, whatever time they were given.
func TestStreamEndsItsCalls(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	answers, silent := serverID(2, [16]byte{2}), serverID(3, [16]byte{3})
	dialling := make(chan struct{})
	stream := newRaftStream(serverID(1, [16]byte{1}), func(ctx context.Context, to raft.ServerID) (net.Conn, error) {
		if to == answers {
			return here, nil
		}
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c, err := stream.Dial(raft.ServerAddress(answers), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := stream.Dial(raft.ServerAddress(silent), time.Hour)
		ended <- err
	}()
	<-dialling
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a call to a peer that said nothing has an answer")
		}
	}
}
