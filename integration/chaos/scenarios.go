package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weirmq/weir/integration/chaos/host"
)

func isolateThenKill(ctx context.Context, r *Run) error {
	for range 3 {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		victims := []*host.Host{l}
		err = r.under(ctx, "cut-peers", victims, func() error {
			if err := r.sleep(ctx, 20*time.Second); err != nil {
				return err
			}
			return r.under(ctx, "kill", victims, r.hold(ctx, time.Second))
		})
		if err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	return nil
}

// pingPong kills the leader at its first acknowledgement, and starts the one before.
func pingPong(ctx context.Context, r *Run, rounds int) error {
	var before *host.Host
	f := r.strike("ping-pong", fmt.Sprintf("%d leaders", rounds))
	defer r.over(f)
	r.take(f, r.alive())
	for range rounds {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		if err := r.awaitAck(ctx); err != nil {
			return err
		}
		r.faults++
		r.note("kill leader (node %d)", l.ID)
		if err := l.Kill(); err != nil {
			return err
		}
		if before != nil {
			if err := restart([]*host.Host{before}); err != nil {
				return err
			}
		}
		before = l
	}
	return restart(r.cluster.Hosts)
}

func lastStanding(ctx context.Context, r *Run) error {
	for range 3 {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		err = r.under(ctx, "kill", r.others(l), func() error {
			if err := r.sleep(ctx, 5*time.Second); err != nil {
				return err
			}
			r.note("power-cut (node %d), which comes back first", l.ID)
			if err := l.PowerCut(); err != nil {
				return err
			}
			return errors.Join(l.Start(), r.sleep(ctx, 5*time.Second))
		})
		if err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	return nil
}

// holder is a network that can hold back one kind of peers' requests.
type holder interface{ Hold(host int, kind string) }

func emptyInRace(ctx context.Context, r *Run) error {
	net, ok := r.cluster.Network().(holder)
	if !ok {
		return errors.New("the network cannot hold calls back")
	}
	holdAll := func(kind string) {
		for _, h := range r.cluster.Hosts {
			net.Hold(h.ID, kind)
		}
	}
	for range 4 {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		follower := r.others(l)[:1]
		if err := r.under(ctx, "kill", follower, r.hold(ctx, 4*time.Second)); err != nil {
			return err
		}
		f := r.strike("wipe-partitions", "while proposals are held")
		r.take(f, follower)
		holdAll("control") // the leader's proposals to take it back wait
		err = r.sleep(ctx, 500*time.Millisecond)
		if err == nil {
			r.faults++
			r.note("wipe-partitions%s", names(follower))
			heal, wiped := wipePartitions(ctx, r, follower)
			err = errors.Join(wiped, heal(ctx), r.sleep(ctx, 500*time.Millisecond))
		}
		holdAll("")
		r.over(f)
		if err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	return nil
}

func freeze(ctx context.Context, r *Run) error {
	for range 5 {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		if err := r.under(ctx, "pause", []*host.Host{l}, r.hold(ctx, 7*time.Second)); err != nil {
			return err
		}
		if err := r.sleep(ctx, 3*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func deleteAndRecreate(ctx context.Context, r *Run) error {
	for i := range 8 {
		victim := r.alive()[i%len(r.alive())]
		if err := r.under(ctx, "churn", []*host.Host{victim}, r.hold(ctx, time.Second)); err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	return metadataGoesBack(ctx, r)
}

// metadataGoesBack gives one node the Raft store that it had a while ago. That node is
// no sound voter any more and is taken away afterwards; it must not harm the others or
// delete what it holds.
func metadataGoesBack(ctx context.Context, r *Run) error {
	victim := r.victims(ctx, Follower)[0]
	raft, old := filepath.Join(victim.Data(), "raft"), filepath.Join(victim.Dir, "raft-then")
	if err := errors.Join(victim.Kill(), os.CopyFS(old, os.DirFS(raft)), victim.Start()); err != nil {
		return err
	}
	for range 2 {
		if err := r.under(ctx, "churn", nil, r.hold(ctx, time.Second)); err != nil {
			return err
		}
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return err
	}
	r.note("the metadata of node %d goes back in time", victim.ID)
	err := errors.Join(victim.Kill(), os.RemoveAll(raft), os.CopyFS(raft, os.DirFS(old)))
	before := folders(victim)
	if err == nil {
		err = leaving(r, []*host.Host{victim})(ctx)
	}
	if after := folders(victim); after < before {
		r.book.Problem("node %d had %d partition folders and has %d after its metadata went back", victim.ID, before, after)
	}
	return err
}

// folders counts a host's partition folders, strays and all.
func folders(h *host.Host) int {
	n := 0
	entries, _ := fs.ReadDir(os.DirFS(h.Data()), ".") // a folder that cannot be read has none
	for _, e := range entries {
		if e.IsDir() && e.Name() != "raft" {
			n++
		}
	}
	return n
}

func corruptMinority(ctx context.Context, r *Run) error {
	for _, kind := range []string{"corrupt-side", "rollback", "cut-tail"} {
		victim := r.victims(ctx, Minority)[0]
		if err := r.under(ctx, kind, []*host.Host{victim}, r.hold(ctx, 2*time.Second)); err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
		for _, h := range r.others(victim) {
			if err := r.under(ctx, "kill", []*host.Host{h}, r.hold(ctx, 5*time.Second)); err != nil {
				return err
			}
			if err := r.awaitWhole(ctx, r.patience); err != nil {
				return err
			}
		}
	}
	return nil
}

func dropReplies(ctx context.Context, r *Run) error {
	for range 5 {
		l, err := r.leader(ctx)
		if err != nil {
			return err
		}
		err = r.under(ctx, "reply-loss", []*host.Host{l}, func() error {
			if err := r.sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			return r.under(ctx, "kill", []*host.Host{l}, r.hold(ctx, 3*time.Second))
		})
		if err != nil {
			return err
		}
		if err := r.under(ctx, "reply-loss", r.alive(), r.hold(ctx, 2*time.Second)); err != nil {
			return err
		}
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	return nil
}

func clocksEverywhere(ctx context.Context, r *Run) error {
	for _, kind := range []string{"clock-step", "clock-strobe"} {
		for _, victims := range [][]*host.Host{r.victims(ctx, Leader), r.victims(ctx, Controller), r.alive()} {
			for range 2 {
				if err := r.under(ctx, kind, victims, r.hold(ctx, 4*time.Second)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func coordinators(ctx context.Context, r *Run) error {
	for range 5 {
		victims := r.victims(ctx, Coordinator)
		if err := r.under(ctx, "pause", victims, r.hold(ctx, 6*time.Second)); err != nil {
			return err
		}
		if err := r.commitOfThePast(ctx); err != nil {
			return err
		}
		if err := r.under(ctx, "kill-back", r.victims(ctx, Coordinator), r.hold(ctx, 3*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

func controllers(ctx context.Context, r *Run) error {
	for i := range 20 {
		kind, hold := "cut", time.Second+time.Duration(r.rnd.Int64N(int64(2*time.Second)))
		switch {
		case i%5 == 4:
			kind = "members"
		case i%4 == 3:
			kind, hold = "pause", 3*time.Second
		}
		err := r.under(ctx, kind, r.victims(ctx, Controller), func() error {
			if i%2 == 0 {
				return r.sleep(ctx, hold)
			}
			r.churning.end()
			limit, cancel := context.WithTimeout(ctx, r.patience)
			defer cancel()
			return errors.Join(r.crew.DeleteTopic(limit, r.churning.topic), r.churning.begin(limit))
		})
		if err != nil {
			return err
		}
		if err := r.sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

func followerReads(ctx context.Context, r *Run) error {
	for _, rack := range []string{"rack-1", "rack-3"} {
		r.crew.Read(r.clients, r.rnd.Uint64(), r.readingFrom(rack))
	}
	return pingPong(ctx, r, 20)
}
