package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// transferTimeout bounds the hand-over of the leadership at the end.
	transferTimeout = 2 * time.Second
	// lingerMax bounds the wait for the new leader's first heartbeat.
	lingerMax = time.Second
	// shutdownTimeout bounds the wait for Raft's goroutines at the end.
	shutdownTimeout = 5 * time.Second
)

// Close leaves the cluster's Raft: a leader hands over first, then everything stops. The
// broker's own shutdown, StopBroker, comes before.
func (n *Node) Close() error {
	n.closing.Do(func() {
		if n.raft != nil && n.raft.State() == raft.Leader {
			n.handLeadership()
		}
		n.closeErr = n.stop()
	})
	return n.closeErr
}

// stop ends everything without a word to the others, as a crash would.
func (n *Node) stop() error {
	n.cancel()
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.stopRaft())
	} else if n.transport != nil {
		_ = n.transport.Close()
	}
	if n.peers != nil {
		n.peers.close()
	} else if n.cfg.Listener != nil {
		_ = n.cfg.Listener.Close()
	}
	n.wg.Wait()
	if n.store != nil {
		errs = append(errs, n.store.close())
	}
	return errors.Join(errs...)
}

// handLeadership transfers the Raft leadership, only here and with the end to follow: a node
// whose transfer was interrupted and that leads again may refuse every write.
func (n *Node) handLeadership() {
	if len(n.electorate().others) == 0 {
		return
	}
	done := make(chan error, 1)
	if !n.goRaft(func() { done <- n.raft.LeadershipTransfer().Error() }) {
		return
	}
	select {
	case err := <-done:
		if err != nil {
			n.log.Warn("the Raft leadership was not handed over; an election follows", "error", err)
			return
		}
		n.linger()
	case <-time.After(transferTimeout):
		n.log.Warn("the Raft leadership was not handed over in time; an election follows")
	}
}

// linger keeps answering "not the controller" until the others have heard of the new leader:
// a connection that just ends would leave them with calls of unknown outcome.
func (n *Node) linger() {
	until := time.After(lingerMax)
	for {
		t, changed := n.lead.get()
		if t.leader != "" && !t.leading {
			break
		}
		select {
		case <-changed:
		case <-until:
			return
		}
	}
	<-time.After(n.cfg.ElectionTimeout / 5) // two heartbeats of the new leader
}

// stopRaft ends Raft's goroutines. With a disk that hangs they do not end; the process does.
// Raft forgets some of the calls it holds when it stops, so those are awaited first: they are
// answered at the latest when a leader without a majority loses its lease.
func (n *Node) stopRaft() error {
	answered := make(chan struct{})
	go func() { // ends with Raft's answers
		n.raftWaits.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(2 * n.cfg.ElectionTimeout):
	}
	done := make(chan error, 1)
	go func() { // ends with Raft; what hangs there hangs for good
		ended := n.raft.Shutdown()
		_ = n.transport.Close()
		err := ended.Error()
		n.transport.CloseStreams()
		n.transport.pusher.close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(shutdownTimeout):
		return fmt.Errorf("the Raft server did not stop in %v", shutdownTimeout)
	}
}
