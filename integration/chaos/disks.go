package chaos

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/weirmq/weir/integration/chaos/host"
)

// tightRoom is less than what a node keeps free for itself, and enough to go on with.
const tightRoom = 24 << 20

// diskFull leaves either a little room, with which a node has to go on and refuse only
// records, or none at all, for want of which it may end.
func diskFull(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	room := r.rnd.Int64N(64 << 10)
	if r.rnd.IntN(2) == 0 {
		room = tightRoom
	}
	heal := func(context.Context) error {
		for _, h := range victims {
			if room == tightRoom && h.PID() == 0 {
				r.book.Problem("node %d ended for want of room though %d MiB were left", h.ID, tightRoom>>20)
			}
		}
		// A node that ended is started again, as an operator does.
		return errors.Join(each(victims, func(h *host.Host) error { return h.Disk.Relieve() }), restart(victims))
	}
	r.note("%d KiB are left", room>>10)
	return heal, each(victims, func(h *host.Host) error { return h.Disk.Fill(room) })
}

func diskDead(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	heal := func(context.Context) error {
		return errors.Join(each(victims, func(h *host.Host) error { return errors.Join(h.Kill(), h.Disk.Return(), h.NewBoot()) }), restart(victims))
	}
	return heal, each(victims, func(h *host.Host) error { return h.Disk.Fail() })
}

func powerCut(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), each(victims, (*host.Host).PowerCut)
}

// site is a place where a disk fails: a call on files whose path holds a text.
type site struct {
	op, part string
	err      error
}

func (s site) String() string {
	if s.part == "" {
		return s.op + " anywhere"
	}
	return s.op + " of " + s.part
}

func (s site) is(op, path string) bool { return op == s.op && strings.Contains(path, s.part) }

func errorSites() []site {
	return []site{
		{"write", ".log", syscall.EIO}, {"sync", ".log", syscall.EIO}, {"read", ".log", syscall.EIO},
		{"write", ".wal", syscall.EIO}, {"sync", ".wal", syscall.EIO}, {"rename", "", syscall.EIO},
		{"sync", "", syscall.EIO}, {"create", "", syscall.EIO}, {"create", "", syscall.ENOSPC}, {"write", "", syscall.ENOSPC},
	}
}

func stallSites() []site {
	return []site{{"sync", ".log", nil}, {"write", ".log", nil}, {"sync", ".wal", nil}, {"sync", "", nil}, {"read", ".log", nil}}
}

// tainted restarts the victims with a tainted folder, waits until they are in sync, and
// lets one site fail as what says.
func tainted(ctx context.Context, r *Run, victims []*host.Host, sites []site, what func(site) host.Hook) error {
	if err := each(victims, (*host.Host).Taint); err != nil {
		return err
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return err
	}
	s := sites[r.rnd.IntN(len(sites))]
	hook := what(s)
	for _, h := range victims {
		r.spoil(h, s, hook)
	}
	return nil
}

func ioError(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	heal := func(context.Context) error { return each(victims, (*host.Host).Clean) }
	return heal, tainted(ctx, r, victims, errorSites(), func(s site) host.Hook {
		return func(op, path string) error {
			if s.is(op, path) {
				return s.err
			}
			return nil
		}
	})
}

func ioStall(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	over := make(chan struct{})
	heal := func(context.Context) error { close(over); return each(victims, (*host.Host).Clean) }
	return heal, tainted(ctx, r, victims, stallSites(), func(s site) host.Hook {
		return func(op, path string) error {
			if s.is(op, path) {
				<-over
			}
			return nil
		}
	})
}
