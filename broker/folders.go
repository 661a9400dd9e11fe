package broker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
)

const (
	// folderRetry lies between two tries to make or remove a folder after a failure.
	folderRetry = time.Second
	// folderRound is how many folders are made or removed before the reconciler
	// looks at a newer Image: a few milliseconds of work.
	folderRound = 32
	// folderWorkers work on one round side by side, since each waits for the disk.
	folderWorkers = 8
)

// folderWork is what remains to be done to the folders. Removals go first, so
// that a name is free before it is used again, and a deletion is confirmed only
// when no removal is left. The reconciler owns it.
type folderWork struct {
	leaving []leaving
	buried  []fsm.TopicID
	missing map[fsm.TopicPartition]*fsm.Topic

	failedLeaving []leaving
	failedMissing map[fsm.TopicPartition]*fsm.Topic
	uncut         map[fsm.TopicPartition]bool // damaged logs that could not be cut
}

// leaving is the log of a replica that this node is to have no more.
type leaving struct {
	log *storage.Log
	// out tells that a row left this node out. That licence to delete stays good when the topic
	// is deleted meanwhile, and when the node is named again: it has no seat, and begins anew.
	out bool
}

func newFolderWork() folderWork {
	return folderWork{
		missing: map[fsm.TopicPartition]*fsm.Topic{}, failedMissing: map[fsm.TopicPartition]*fsm.Topic{},
		uncut: map[fsm.TopicPartition]bool{},
	}
}

func (w *folderWork) make(tp fsm.TopicPartition, t *fsm.Topic) {
	if w.failedMissing[tp] == nil {
		w.missing[tp] = t
	}
}

func (w *folderWork) remove(l *storage.Log, out bool) {
	w.leaving = append(w.leaving, leaving{l, out})
}

// keeps tells that a log which is to be removed could not be yet.
func (w *folderWork) keeps(l *storage.Log) bool {
	return slices.ContainsFunc(w.failedLeaving, func(o leaving) bool { return o.log == l })
}

func (w *folderWork) bury(id fsm.TopicID) { w.buried = append(w.buried, id) }

// forget drops a folder that need not be made any more.
func (w *folderWork) forget(tp fsm.TopicPartition) {
	delete(w.missing, tp)
	delete(w.failedMissing, tp)
	delete(w.uncut, tp)
}

func (w *folderWork) anyFailed() bool {
	return len(w.failedLeaving)+len(w.failedMissing)+len(w.uncut) > 0
}

func (w *folderWork) retry() {
	w.leaving, w.failedLeaving = append(w.leaving, w.failedLeaving...), nil
	for tp, t := range w.failedMissing {
		w.missing[tp] = t
	}
	clear(w.failedMissing)
}

// folders does one round of the work and tells whether there was any.
func (r *reconciler) folders() bool {
	w := &r.work
	switch {
	case len(w.leaving) > 0:
		r.removeSome()
	case len(w.buried) > 0 && len(w.failedLeaving) == 0:
		for _, id := range w.buried {
			r.keeper.confirm(id)
		}
		w.buried = nil
	case len(w.missing) > 0:
		r.makeSome()
	default:
		return false
	}
	return true
}

func (r *reconciler) removeSome() {
	w := &r.work
	n := min(len(w.leaving), folderRound)
	some := w.leaving[:n]
	errs := sideBySide(n, func(i int) error {
		if some[i].out {
			return r.delete(some[i].log)
		}
		return r.discard(r.last, some[i].log)
	})
	for i, err := range errs {
		if err != nil {
			r.log.Error("cannot remove a replica, will try again", "error", err)
			w.failedLeaving = append(w.failedLeaving, some[i])
		}
	}
	w.leaving = w.leaving[n:]
}

func (r *reconciler) makeSome() {
	w := &r.work
	var tps []fsm.TopicPartition
	for tp := range w.missing {
		if tps = append(tps, tp); len(tps) == folderRound {
			break
		}
	}
	made := make([]*Partition, len(tps))
	errs := sideBySide(len(tps), func(i int) (err error) {
		made[i], err = r.create(r.last, tps[i], w.missing[tps[i]].Name)
		return err
	})
	for i, tp := range tps {
		t := w.missing[tp]
		delete(w.missing, tp)
		if errs[i] != nil {
			r.log.Error("cannot make a replica, will try again", "topic", t.Name, "partition", tp.Partition, "error", errs[i])
			w.failedMissing[tp] = t
			continue
		}
		r.replicas.put(made[i])
		if now, ok := r.last.Topic(tp.Topic); ok {
			t = now // configured anew since
		}
		if s, ok := r.last.Partition(tp); ok {
			r.place(r.last, tp, t, s)
		}
	}
}

// retry has what failed done again. Damaged logs are cut as their replicas are assigned again.
func (r *reconciler) retry() {
	r.work.retry()
	uncut := slices.Collect(maps.Keys(r.work.uncut))
	clear(r.work.uncut)
	for _, tp := range uncut {
		t, known := r.last.Topic(tp.Topic)
		s, ok := r.last.Partition(tp)
		if p := r.replicas.Get(tp); ok && known && p != nil {
			r.assign(r.last, p, s, r.stateOf(t, s))
		}
	}
}

// create makes the folder. A log that has the name and another id belongs to an
// earlier topic and makes room first.
func (r *reconciler) create(im *fsm.Image, tp fsm.TopicPartition, name string) (*Partition, error) {
	if old := r.dir.Log(name, tp.Partition); old != nil {
		if r.work.keeps(old) {
			return nil, fmt.Errorf("make the replica %s-%d: the folder that it had before is still there", name, tp.Partition)
		}
		if fsm.TopicID(old.ID()) == tp.Topic {
			return newPartition(tp, old, r.env), nil
		}
		if err := r.discard(im, old); err != nil {
			return nil, err
		}
	}
	l, err := r.dir.Create(name, tp.Partition, storage.ID(tp.Topic))
	if err != nil {
		return nil, err
	}
	return newPartition(tp, l, r.env), nil
}

// discard removes a folder on a tombstone or on a row that leaves this node out, and
// otherwise sets it aside.
func (r *reconciler) discard(im *fsm.Image, l *storage.Log) error {
	if _, buried := im.Tombstone(fsm.TopicID(l.ID())); buried || leavesOut(im, l, r.env.self) {
		return r.delete(l)
	}
	r.log.Error("replica is not known to the cluster and was set aside", "topic", l.Topic(), "partition", l.Partition(), "dir", l.Dir())
	if err := r.dir.Stray(l); err != nil {
		return fmt.Errorf("set aside the replica %s-%d: %w", l.Topic(), l.Partition(), err)
	}
	return nil
}

func (r *reconciler) delete(l *storage.Log) error {
	if err := r.dir.Delete(l); err != nil {
		return fmt.Errorf("delete the replica %s-%d: %w", l.Topic(), l.Partition(), err)
	}
	return nil
}

// leavesOut tells whether im knows the partition that a log belongs to, by topic id, name
// and number, and names other nodes for it.
func leavesOut(im *fsm.Image, l *storage.Log, self fsm.BrokerID) bool {
	t, known := im.Topic(fsm.TopicID(l.ID()))
	if !known || t.Name != l.Topic() {
		return false
	}
	s, ok := im.Partition(fsm.TopicPartition{Topic: t.ID, Partition: l.Partition()})
	return ok && !slices.Contains(s.Replicas, self)
}

// sideBySide calls f for 0 to n-1 on a few goroutines and waits for all.
func sideBySide(n int, f func(int) error) []error {
	errs := make([]error, n)
	if n == 1 {
		errs[0] = f(0)
		return errs
	}
	var workers sync.WaitGroup
	for first := range min(n, folderWorkers) {
		workers.Go(func() {
			for i := first; i < n; i += folderWorkers {
				errs[i] = f(i)
			}
		})
	}
	workers.Wait()
	return errs
}
