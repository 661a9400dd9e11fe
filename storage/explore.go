package storage

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// found is what a partition's folder holds.
type found struct {
	id     ID
	segs   []foundSegment // by base
	epochs epochs
	snaps  []batch.Offset
	known  bool // the epoch file was there and whole
}

type foundSegment struct {
	base batch.Offset
	size int64
}

// explore lists a partition's folder and removes what an earlier run left
// unfinished.
func (d *Dir) explore(path string) (found, error) {
	var f found
	entries, err := d.settledDir(path)
	if err != nil {
		return f, err
	}
	for _, e := range entries {
		if base, ok := parseFileName(e.Name(), logSuffix); ok {
			info, err := e.Info()
			if err != nil {
				return f, err
			}
			f.segs = append(f.segs, foundSegment{base, info.Size()})
		}
		if o, ok := parseFileName(e.Name(), snapshotSuffix); ok {
			f.snaps = append(f.snaps, o)
		}
	}
	for _, e := range entries {
		if f.leftover(e.Name()) {
			if err := removeIfThere(d.fs, filepath.Join(path, e.Name())); err != nil {
				return f, err
			}
		}
	}
	if f.id, err = readMetadata(d.fs, filepath.Join(path, metadataFile)); err != nil {
		d.o.Logger.Warn("partition folder has no readable topic id", "folder", path, "error", err)
	}
	f.epochs, f.known, err = d.readEpochs(filepath.Join(path, epochFile))
	return f, err
}

// settledDir lists a partition's folder once what was decided of its segments is done.
func (d *Dir) settledDir(path string) ([]fs.DirEntry, error) {
	entries, err := d.fs.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if any, err := d.finishSwaps(path, entries); !any || err != nil {
		return entries, err
	}
	return d.fs.ReadDir(path)
}

// leftover tells whether a file is of no use: unfinished, set aside to be removed,
// or the index of a segment that is not there.
func (f found) leftover(name string) bool {
	for _, suffix := range []string{deletedSuffix, tmpSuffix, cleanedSuffix, swapSuffix} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		if base, ok := parseFileName(name, suffix); ok {
			_, found := slices.BinarySearchFunc(f.segs, base, func(s foundSegment, b batch.Offset) int { return cmp.Compare(s.base, b) })
			return !found
		}
	}
	return false
}

func readMetadata(fsys vfs.FS, path string) (ID, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return ID{}, err
	}
	return parseMetadata(data)
}

func (d *Dir) readEpochs(path string) (epochs, bool, error) {
	data, err := vfs.ReadFile(d.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	es, err := parseEpochs(data)
	if err != nil {
		d.o.Logger.Warn("epoch file is unreadable; it is made again from the batches", "file", path, "error", err)
		return nil, false, nil
	}
	return es, true, nil
}

// beginsAt tells whether a log without a start offset of its own begins with the
// segment at base. Kafka writes down a start only if it lies within a segment, but
// its epoch file begins there. Otherwise the log began at 0, and a crash took the
// name of the first segment before it was synced; the epoch file may then begin at a
// later start that was not written down any more.
func (f found) beginsAt(base batch.Offset) bool {
	return base == 0 || f.known && len(f.epochs) > 0 && f.epochs[0].start == base
}
