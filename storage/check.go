package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// Check verifies a data folder, or one partition's folder, that no process has
// open: every batch, every index entry, epoch files, producer snapshots and
// recovery points. It changes nothing, and returns all it finds wrong, joined.
//
// After an orderly stop a folder passes. After a crash it need not, until the
// folder has been opened and closed again.
func Check(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(filepath.Join(dir, metadataFile)); err == nil {
		return checkFolder(fsys, dir, 0, 0)
	}
	var files [3]offsets
	var errs []error
	for i, name := range []string{recoveryFile, startFile, hwFile} {
		var err error
		files[i], err = readOffsets(fsys, filepath.Join(dir, name))
		errs = append(errs, err)
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("check %s: %w", dir, err)
	}
	for _, e := range entries {
		if p, ok := parsePartition(e.Name()); ok && e.IsDir() {
			errs = append(errs, checkFolder(fsys, filepath.Join(dir, e.Name()), files[0][p], files[1][p]))
		}
	}
	return errors.Join(errs...)
}

// checker verifies one partition's folder.
type checker struct {
	fs     vfs.FS
	dir    string
	buf    []byte
	end    batch.Offset
	begun  bool // end is that of a segment
	epochs epochs
	errs   []error
}

func checkFolder(fsys vfs.FS, dir string, recovery, start batch.Offset) error {
	c := &checker{fs: fsys, dir: dir, buf: make([]byte, scanWindow)}
	if _, err := readMetadata(fsys, filepath.Join(dir, metadataFile)); err != nil {
		c.wrong(metadataFile, 0, 0, err.Error())
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("check %s: %w", dir, err)
	}
	var snaps []batch.Offset
	for _, e := range entries {
		if base, ok := parseFileName(e.Name(), logSuffix); ok {
			c.segment(base)
		}
		if o, ok := parseFileName(e.Name(), snapshotSuffix); ok {
			snaps = append(snaps, o)
		}
	}
	for _, o := range snaps {
		c.snapshot(o)
	}
	if start < c.end {
		c.epochFile(recovery, start)
	}
	if recovery > c.end {
		c.wrong("", 0, c.end, fmt.Sprintf("the log ends at %d and was flushed to %d", c.end, recovery))
	}
	return errors.Join(c.errs...)
}

func (c *checker) wrong(name string, pos int64, o batch.Offset, msg string) {
	c.errs = append(c.errs, &CorruptError{Path: filepath.Join(c.dir, name), Pos: pos, Offset: o, Msg: msg})
}

// failed notes an error of the disk.
func (c *checker) failed(err error) {
	c.errs = append(c.errs, fmt.Errorf("check %s: %w", c.dir, err))
}

// segment walks one segment file beside its indexes.
func (c *checker) segment(base batch.Offset) {
	name := fileName(base, logSuffix)
	if base != c.end && c.begun {
		c.wrong(name, 0, base, fmt.Sprintf("the segment does not begin where the one before ends, at %d", c.end))
	}
	c.begun = true
	offs, times := c.index(base, offsetIndex), c.index(base, timeIndex)
	f, err := c.fs.Open(filepath.Join(c.dir, name), os.O_RDONLY, 0)
	if err != nil {
		c.failed(err)
		return
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		c.failed(err)
		return
	}
	c.end = max(c.end, base)
	newest := batch.NoTimestamp
	sc := newScanner(f, 0, size, c.buf)
	for {
		h, n, err := c.next(&sc, name)
		if err != nil {
			break
		}
		newest = max(newest, h.NewestTimestamp())
		last := h.Last() - base
		c.epochs = c.epochs.add(h.Epoch(), h.Base())
		c.end = h.End()
		if len(offs) > 0 && int64(offs[0].val) == sc.pos && offs[0].key == int64(last) {
			offs = offs[1:]
		}
		if len(times) > 0 && int64(times[0].val) == int64(last) && times[0].key == newest {
			times = times[1:]
		}
		sc.skip(n)
	}
	for kind, left := range map[indexKind][]entry{offsetIndex: offs, timeIndex: times} {
		if len(left) > 0 {
			c.wrong(fileName(base, kind.suffix()), 0, base, fmt.Sprintf("entry %v names no batch, as do %d more perhaps", left[0], len(left)-1))
		}
	}
}

// next returns the header of the next batch if it is good; any error ends the
// segment and was noted.
func (c *checker) next(sc *scanner, name string) (batch.Batch, int64, error) {
	h, n, err := sc.head()
	if err == nil && h.Base() != c.end {
		err = &badBatch{sc.pos, fmt.Sprintf("offset %d where %d comes next", h.Base(), c.end)}
	}
	if err == nil && h.Epoch() < c.epochs.last() {
		err = &badBatch{sc.pos, fmt.Sprintf("epoch %d comes after %d", h.Epoch(), c.epochs.last())}
	}
	if err == nil {
		err = sc.checkCRC(h.CRC(), n)
	}
	if err == nil {
		h, n, err = sc.head()
	}
	if bad := (*badBatch)(nil); errors.As(err, &bad) {
		c.wrong(name, bad.pos, c.end, bad.msg)
	} else if err != nil && !errors.Is(err, io.EOF) {
		c.failed(err)
	}
	return h, n, err
}

// index reads an index file whole; a missing one is no fault.
func (c *checker) index(base batch.Offset, k indexKind) []entry {
	name := fileName(base, k.suffix())
	data, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.failed(err)
		return nil
	}
	if len(data)%k.size() != 0 {
		c.wrong(name, int64(len(data)), base, "the last entry is cut")
	}
	var out []entry
	for ; len(data) >= k.size(); data = data[k.size():] {
		e := k.decode(data)
		if n := len(out); n > 0 && (e.key <= out[n-1].key || e.val < out[n-1].val) {
			c.wrong(name, int64(n*k.size()), base, fmt.Sprintf("entry %v comes after %v", e, out[n-1]))
		}
		out = append(out, e)
	}
	return out
}

func (c *checker) snapshot(o batch.Offset) {
	name := fileName(o, snapshotSuffix)
	data, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, name))
	if err != nil {
		c.failed(err)
		return
	}
	var ps producers
	if err := ps.decode(data, 0); err != nil {
		c.wrong(name, 0, o, err.Error())
	}
	if o > c.end {
		c.wrong(name, 0, o, fmt.Sprintf("the snapshot lies past the log's end at %d", c.end))
	}
}

// epochFile compares the file with the epochs of the batches, from the log's start
// to the recovery point: above it entries may be missing.
func (c *checker) epochFile(recovery, start batch.Offset) {
	data, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		if len(c.epochs) > 0 && c.epochs[0].start < recovery {
			c.wrong(epochFile, 0, 0, "the file is missing")
		}
		return
	}
	if err != nil {
		c.failed(err)
		return
	}
	file, err := parseEpochs(data)
	if err != nil {
		c.wrong(epochFile, 0, 0, err.Error())
		return
	}
	got, want := file.cutStart(start).cutEnd(recovery), c.epochs.cutStart(start).cutEnd(recovery)
	if !slices.Equal(got, want) {
		c.wrong(epochFile, 0, 0, fmt.Sprintf("the file says %v and the batches say %v", got, want))
	}
}
