package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/storage"
)

// handOffPatience bounds the wait for leaderships to move: with no controller
// to move them, a node stops as it is, and its peers elect when its session ends.
const handOffPatience = 10 * time.Second

// drainPatience bounds how long clients may take for the answers that are due
// once this node leads nothing any more. It is part of a producer's gap.
const drainPatience = 200 * time.Millisecond

// lingerPatience is how long a node that leads nothing any more goes on
// answering its clients, so that they hear from it who leads now. A connection
// that is closed under a client, or refused to it, costs the client a back-off.
const lingerPatience = 500 * time.Millisecond

// Close is the controlled shutdown: leaderships are handed over while this node
// still answers, so that waiting produces either complete or learn who leads
// now; then everything is flushed and the folder is marked as cleanly stopped.
// When ctx ends it stops as it is.
func (n *Node) Close(ctx context.Context) error {
	var err error
	n.stopping.Do(func() { err = n.close(ctx) })
	return err
}

// Abort stops without handing anything over and without the mark of a clean
// stop, as a crash of the process would.
func (n *Node) Abort() {
	n.stopping.Do(func() {
		n.ready.Store(false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody is waited for
		n.stopServers(ctx)
		n.stopReplicas()
		_ = n.stopParts(nil) // a crash reports nothing either
	})
}

func (n *Node) close(ctx context.Context) error {
	n.ready.Store(false)
	n.handOver(ctx)
	n.linger(ctx)
	drain, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	n.stopServers(drain)
	epoch := n.env.epoch()
	if err := n.recordIndex(n.reconciler.settled()); err != nil {
		n.log.Warn("the reconciled metadata index was not recorded", "error", err)
	}
	n.stopReplicas()
	return n.stopParts(&storage.CleanStop{BrokerEpoch: int64(epoch)})
}

func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOffPatience)
	defer cancel()
	if err := n.controller.StopBroker(ctx); err != nil {
		n.log.Warn("leaderships were not handed over", "error", err)
	}
}

// linger serves on for a while if there are clients.
func (n *Node) linger(ctx context.Context) {
	if n.server == nil || n.server.connections() == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(lingerPatience):
	}
}

// stopServers ends the client and admin servers, or just their listeners when
// they never served. Requests that ctx leaves no time for are cut off.
func (n *Node) stopServers(ctx context.Context) {
	if n.server != nil {
		if err := n.server.Close(ctx); err != nil {
			n.log.Debug("clients were cut off", "error", err)
		}
	}
	if n.clientListener != nil {
		_ = n.clientListener.Close()
	}
	if n.admin != nil {
		if err := n.admin.Close(ctx); err != nil {
			n.log.Debug("admin requests were cut off", "error", err)
		}
	}
	if n.adminListener != nil {
		_ = n.adminListener.Close()
	}
	n.serving.Wait()
}

// stopReplicas ends everything that changes roles or feeds replicas. The feeds
// to followers end with the controller's peer listener.
func (n *Node) stopReplicas() {
	if n.disk != nil {
		n.disk.close()
	}
	if n.started {
		n.stopRoles()
		<-n.reconciler.done
		<-n.keeper.done
		<-n.retention.done
		<-n.env.changes.done
		<-n.groups.done
	}
	if n.follows != nil {
		n.follows.close()
	}
	if n.env != nil {
		n.env.ticks.close()
	}
}

// stopParts closes the metadata, then the logs, then gives the folder away.
func (n *Node) stopParts(stop *storage.CleanStop) error {
	var errs []error
	if n.controller != nil {
		if err := n.controller.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the metadata: %w", err))
		}
	}
	if n.dir != nil {
		if err := n.dir.Close(stop); err != nil {
			errs = append(errs, fmt.Errorf("close the logs: %w", err))
		}
	}
	if n.lock != nil {
		if err := n.lock.Close(); err != nil {
			errs = append(errs, fmt.Errorf("release the data folder: %w", err))
		}
	}
	return errors.Join(errs...)
}
