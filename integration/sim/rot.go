package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// A disk that changes bytes at rest: while a process is down a bit of a batch flips that
// is long since durable. The log must not show it to anybody: a read, a feed or the scrub
// finds it, the replica gives up its seat and fetches again what it lacks. It happens only
// where another member surely holds all, and not together with a loss of all machines,
// which would leave nobody to fetch from.

// rotten is a batch on a disk of which a bit flipped.
type rotten struct {
	path string // of its segment
	rec  rec
}

// decay ends a process and has bits flip in its logs.
func (w *world) decay(n *node, f Fault, r *rand.Rand) {
	if !n.up || n.dir == nil {
		return
	}
	w.down(n, f.For/4, func() {
		n.end(false)
		for range 1 + r.IntN(2) {
			w.flipAtRest(n, r)
		}
	})
}

// flipAtRest flips a bit of a durable batch of a log that n can do without.
func (w *world) flipAtRest(n *node, r *rand.Rand) {
	var able []*held
	for _, h := range n.journals {
		p := w.part(h.tp)
		s, ok := w.raft.image.Partition(h.tp)
		if ok && !h.leaving && !n.rots(h) && h.cutTo < 0 && n.durableEnd(h) > h.j.start && slices.Contains(s.Replicas, n.id) && w.sparesPart(p, s, n) {
			able = append(able, h)
		}
	}
	if len(able) == 0 {
		return
	}
	h := able[r.IntN(len(able))]
	below := h.j.at(n.durableEnd(h))
	if below == 0 {
		return
	}
	x := h.j.recs[r.IntN(below)]
	path, pos, size := n.locate(h, x.base)
	if size == 0 {
		w.fail("logs hold what was appended", "%s-%d on node %d: no batch at %d in its files", h.topic, h.tp.Partition, n.id, x.base)
	}
	at := pos + r.IntN(size)
	w.note(n.id, "byte %d of the batch at %d of %s rots", at-pos, x.base, filepath.Base(path))
	w.flipByte(n.disk.Mem, path, int64(at), byte(1)<<r.IntN(8))
	h.rot = append(h.rot, rotten{path, x})
}

// flipByte changes a byte of a file under everybody's feet.
func (w *world) flipByte(m *vfs.Mem, path string, at int64, mask byte) {
	b := make([]byte, 1)
	f, err := m.Open(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.ReadAt(b, at)
	}
	if err == nil {
		b[0] ^= mask
		_, err = f.WriteAt(b, at)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		w.fail("files can be changed", "%s at %d: %v", path, at, err)
	}
}

// durableEnd is to where a log need not be looked at by a start: its recovery point as
// the disk has it.
func (n *node) durableEnd(h *held) batch.Offset {
	text, err := vfs.ReadFile(n.disk.Mem, filepath.Join(dataPath, "recovery-point-offset-checkpoint"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var topic string
		var partition int32
		var end int64
		if k, _ := fmt.Sscan(line, &topic, &partition, &end); k == 3 && topic == h.topic && partition == h.tp.Partition {
			return min(batch.Offset(end), h.j.end())
		}
	}
	return 0
}

// locate finds a batch in the files of a log: its segment, and where it lies there.
func (n *node) locate(h *held, base batch.Offset) (path string, pos, size int) {
	folder := filepath.Join(dataPath, fmt.Sprintf("%s-%d", h.topic, h.tp.Partition))
	names, err := n.disk.ReadDir(folder)
	if err != nil {
		return "", 0, 0
	}
	for _, e := range names {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		path := filepath.Join(folder, e.Name())
		text, err := vfs.ReadFile(n.disk.Mem, path)
		if err != nil {
			continue
		}
		for rest := text; len(rest) > 0; {
			b, next, err := batch.Next(rest)
			if err != nil {
				break
			}
			if b.Base() == base {
				return path, len(text) - len(rest), len(b)
			}
			rest = next
		}
	}
	return "", 0, 0
}

// rots tells whether a log holds bytes that changed at rest: until they are cut off or
// their segment is gone.
func (n *node) rots(h *held) bool {
	h.rot = slices.DeleteFunc(h.rot, func(x rotten) bool {
		_, err := n.disk.Stat(x.path)
		return err != nil
	})
	return len(h.rot) > 0
}

// mended forgets the rot that a cut took away.
func (h *held) mended(end batch.Offset) {
	h.rot = slices.DeleteFunc(h.rot, func(x rotten) bool { return x.rec.base >= end })
}

// anyRot tells whether any log rots.
func (w *world) anyRot() bool {
	for _, n := range w.nodes {
		for _, h := range n.journals {
			if n.rots(h) {
				return true
			}
		}
	}
	return false
}

// spoilt tells whether an error of the log of a replica that rots says so.
func (r *replica) spoilt(err error) bool {
	var bad *storage.CorruptError
	return errors.As(err, &bad) && r.n.rots(r.h)
}

// checkRot has a node scrub all it has: what rots is found by that, if not before.
func (n *node) checkRot() {
	if !slices.ContainsFunc(n.journals, n.rots) {
		return
	}
	for more := true; more; {
		done, err := n.dir.Scrub(1 << 20)
		if err != nil {
			n.w.fail("logs can be read", "node %d scrubs: %v", n.id, err)
		}
		more = done > 0
	}
	for _, r := range n.replicas {
		if n.rots(r.h) && !r.damaged() { // isDamaged takes for known what rots
			n.w.fail("what rots is found", "node %d has scrubbed %s and does not know that %v rots", n.id, r.part.name(), r.h.rot[0].rec)
		}
	}
}
