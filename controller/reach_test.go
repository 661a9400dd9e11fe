package controller

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestEntriesWaitForAHeartbeat(t *testing.T) {
	lead := newLeadership()
	lead.update(func(t *tenure) { t.leading, t.gained = true, 1 })
	ended := make(chan struct{})
	r := newReach(lead, ended)
	r.await("b") // never heard of: sent at once

	for _, tc := range []struct {
		name string
		end  func()
	}{
		{"the follower is back", func() { r.heard("b", nil) }},
		{"the leadership is lost", func() { lead.update(func(t *tenure) { t.leading = false }) }},
		{"the node closes", func() { close(ended) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lead.update(func(t *tenure) { t.leading = true })
			r.heard("b", errors.New("connection refused"))
			done := make(chan struct{})
			go func() {
				r.await("b")
				close(done)
			}()
			r.await("c")
			select {
			case <-done:
				t.Fatal("entries for a follower that is away did not wait")
			default:
			}
			tc.end()
			<-done
		})
	}
}

func TestRaftLoggerRepeatsNothing(t *testing.T) {
	var b bytes.Buffer
	l := newRaftLogger(hclog.New(&hclog.LoggerOptions{Output: &b, Level: hclog.Debug}))
	for range 5 {
		l.Error("failed to heartbeat to", "peer", raft.ServerAddress("x"), "error", "refused")
		l.Error("failed to heartbeat to", "peer", raft.ServerAddress("y"), "error", "refused")
		l.Warn("election timeout reached")
	}
	if n := strings.Count(b.String(), "\n"); n != 3 {
		t.Fatalf("%d lines, want 3:\n%s", n, b.String())
	}
}
