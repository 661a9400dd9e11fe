package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirmq/weir/integration/chaos/host"
)

// chosen tells whether a file of a data folder, by its path within it, is meant.
type chosen func(path string) bool

func segments(path string) bool { return strings.HasSuffix(path, ".log") }

// sideFiles are those that can be made again from the segments.
func sideFiles(path string) bool {
	base := filepath.Base(path)
	switch filepath.Ext(base) {
	case ".index", ".timeindex", ".snapshot":
		return !strings.HasPrefix(path, "raft/")
	}
	return strings.HasSuffix(base, "-checkpoint")
}

func partitionFiles(path string) bool { return segments(path) || sideFiles(path) }

func raftStore(path string) bool { return strings.HasPrefix(path, "raft/") }

// filesOf lists the files of a host's data folder that are meant, in order.
func filesOf(h *host.Host, which chosen) ([]string, error) {
	var out []string
	err := filepath.WalkDir(h.Data(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone while we looked
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(h.Data(), path)
		if err == nil && d.Type().IsRegular() && which(rel) && !strings.Contains(rel, ".deleted") && !strings.Contains(rel, "-delete/") {
			out = append(out, path)
		}
		return err
	})
	return out, err
}

// flipBits changes about two bits of a file, as a bad disk does.
func flipBits(r *Run, path string) error {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return err
	}
	for range 2 {
		text[r.rnd.IntN(len(text))] ^= 1 << r.rnd.IntN(8)
	}
	return os.WriteFile(path, text, 0o644)
}

// corrupt kills the victims and flips bits in one of three of the files that are meant.
func corrupt(which chosen) func(context.Context, *Run, []*host.Host) (func(context.Context) error, error) {
	return func(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
		return restarting(victims), each(victims, func(h *host.Host) error {
			if err := h.Kill(); err != nil {
				return err
			}
			return r.damage(h, which, "bits flipped in", flipBits)
		})
	}
}

// damage does something to a third of the files that are meant, and to one at least.
func (r *Run) damage(h *host.Host, which chosen, what string, do func(*Run, string) error) error {
	files, err := filesOf(h, which)
	if err != nil {
		return err
	}
	r.rnd.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	hit := files[:min(len(files), 1+len(files)/3)]
	var names []string
	for _, f := range hit {
		if err := do(r, f); err != nil {
			return fmt.Errorf("damage %s: %w", f, err)
		}
		names = append(names, strings.TrimPrefix(f, h.Data()+"/"))
	}
	h.Note("%s %s", what, strings.Join(names, " "))
	r.note("node %d: %s %d files (the node's log names them)", h.ID, what, len(hit))
	return nil
}

const pieceBytes = 4096

// rollback takes a copy of files while the node runs, and later puts pieces of it back.
func rollback(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	old := map[string][]byte{}
	for _, h := range victims {
		files, err := filesOf(h, partitionFiles)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && len(text) < 8<<20 {
				old[f] = text
			}
		}
	}
	if err := r.sleep(ctx, holdMin); err != nil { // time passes, which the pieces will not know of
		return nil, err
	}
	return restarting(victims), each(victims, func(h *host.Host) error {
		if err := h.Kill(); err != nil {
			return err
		}
		return r.damage(h, partitionFiles, "4 KiB rolled back in", func(r *Run, path string) error {
			then, ok := old[path]
			if !ok || len(then) == 0 {
				return nil
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			at := r.rnd.IntN((len(then)+pieceBytes-1)/pieceBytes) * pieceBytes
			_, err = f.WriteAt(then[at:min(at+pieceBytes, len(then))], int64(at))
			return err
		})
	})
}

// newest returns what chooses the last segment of each partition of a host, and cold
// what chooses the others.
func newest(h *host.Host) (newest, cold chosen, err error) {
	files, err := filesOf(h, segments)
	last := map[string]string{}
	for _, f := range files { // in order
		last[filepath.Dir(f)] = f
	}
	is := func(path string) bool { f := filepath.Join(h.Data(), path); return last[filepath.Dir(f)] == f }
	return is, func(path string) bool { return segments(path) && !is(path) }, err
}

func cutTails(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return cutEnds(ctx, r, victims, func(h *host.Host) (chosen, error) { which, _, err := newest(h); return which, err })
}

func cutCold(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return cutEnds(ctx, r, victims, func(h *host.Host) (chosen, error) { _, which, err := newest(h); return which, err })
}

func cutEnds(_ context.Context, r *Run, victims []*host.Host, choose func(*host.Host) (chosen, error)) (func(context.Context) error, error) {
	return restarting(victims), each(victims, func(h *host.Host) error {
		if err := h.Kill(); err != nil {
			return err
		}
		which, err := choose(h)
		if err != nil {
			return err
		}
		return r.damage(h, which, "end cut from", func(r *Run, path string) error {
			st, err := os.Stat(path)
			if err != nil || st.Size() == 0 {
				return err
			}
			return os.Truncate(path, r.rnd.Int64N(st.Size()))
		})
	})
}

// wipePartitions removes the partition folders and leaves the node its identity.
func wipePartitions(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), each(victims, func(h *host.Host) error {
		if err := h.Kill(); err != nil {
			return err
		}
		return removePartitions(h)
	})
}

// wipeLive removes the partition folders of nodes that go on.
func wipeLive(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), each(victims, removePartitions)
}

// removeTries is how often a folder is removed in which a node makes files meanwhile.
const removeTries = 10

func removePartitions(h *host.Host) error {
	entries, err := os.ReadDir(h.Data())
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "raft" {
			continue
		}
		var failed error
		for range removeTries {
			if failed = os.RemoveAll(filepath.Join(h.Data(), e.Name())); failed == nil {
				break
			}
		}
		err = errors.Join(err, failed)
	}
	return err
}

// leaving restarts victims that may refuse to run, and lets them go for good.
func leaving(r *Run, victims []*host.Host) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := restart(victims); err != nil {
			return err
		}
		err := r.sleep(ctx, 5*holdMin) // it must do no harm while it tries to come back
		for _, h := range victims {
			if h.PID() != 0 {
				r.note("node %d has come back and is taken away", h.ID)
			}
			err = errors.Join(err, h.Kill())
			h.Abandon()
		}
		return err
	}
}

func corruptRaft(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return leaving(r, victims), each(victims, func(h *host.Host) error {
		if err := h.Kill(); err != nil {
			return err
		}
		return r.damage(h, raftStore, "bits flipped in", func(r *Run, path string) error {
			for range 8 {
				if err := flipBits(r, path); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func wipe(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return leaving(r, victims), each(victims, func(h *host.Host) error {
		return errors.Join(h.Kill(), os.RemoveAll(h.Data()))
	})
}
