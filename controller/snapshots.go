package controller

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// snapshotsFolder is where Raft's own store keeps its snapshots, in the Raft folder.
	snapshotsFolder = "snapshots"
	// damagedFolder is where damaged ones are put, beside it.
	damagedFolder = "damaged-snapshots"
)

// snapshots is Raft's snapshot store, which reads each snapshot back before it counts. The
// log behind a snapshot is deleted on the strength of it, and a leader sends its newest one
// to followers that lag: one that can not be read must not be the newest.
type snapshots struct {
	*raft.FileSnapshotStore
	dir string
	// taken is told of each complete snapshot and its size, before the log behind it is deleted.
	taken func(index uint64, size int64)
}

func openSnapshots(raftDir string, log hclog.Logger) (*snapshots, error) {
	s, err := raft.NewFileSnapshotStoreWithLogger(raftDir, snapshotsKept, log)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot folder: %w", err)
	}
	// The store syncs what it keeps in its folder, not the name of that folder.
	if err := syncFolder(raftDir); err != nil {
		return nil, fmt.Errorf("open the snapshot folder: %w", err)
	}
	return &snapshots{s, filepath.Join(raftDir, snapshotsFolder), func(uint64, int64) {}}, nil
}

// Create begins a snapshot.
func (s *snapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, cIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(v, index, term, c, cIndex, t)
	if err != nil {
		return nil, err
	}
	return &checkedSink{SnapshotSink: sink, snapshots: s, index: index}, nil
}

// check reads a snapshot and compares its checksum; one that differs is removed.
func (s *snapshots) check(id string) error {
	_, r, err := s.Open(id) // which reads it to the end
	if err == nil {
		return r.Close()
	}
	err = fmt.Errorf("the snapshot %s can not be read back and is removed: %w", id, err)
	return errors.Join(err, os.RemoveAll(filepath.Join(s.dir, id)))
}

// checkedSink checks its snapshot once it is complete. Raft closes a sink twice.
type checkedSink struct {
	raft.SnapshotSink
	snapshots *snapshots
	index     uint64
	size      int64
	over      bool
	err       error
}

// Write writes to the snapshot.
func (c *checkedSink) Write(p []byte) (int, error) {
	n, err := c.SnapshotSink.Write(p)
	c.size += int64(n)
	return n, err
}

// Close completes the snapshot; an error means that there is none.
func (c *checkedSink) Close() error {
	if c.over {
		return c.err
	}
	c.over = true
	if c.err = c.SnapshotSink.Close(); c.err == nil {
		c.err = c.snapshots.check(c.ID())
	}
	if c.err == nil {
		c.snapshots.taken(c.index, c.size)
	}
	return c.err
}

// Cancel gives the snapshot up.
func (c *checkedSink) Cancel() error {
	if c.over {
		return nil
	}
	c.over, c.err = true, errors.New("the snapshot was given up")
	return c.SnapshotSink.Cancel()
}

// readable is the newest snapshot that can be read, nil when there is none, with the names
// of newer ones that can not.
func (s *snapshots) readable() (newest *raft.SnapshotMeta, damaged []string, err error) {
	list, err := s.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list the snapshots in %s: %w", s.dir, err)
	}
	for _, meta := range list {
		if _, r, err := s.Open(meta.ID); err == nil { // which compares the checksum
			newest = meta
			_ = r.Close()
			break
		}
	}
	folders, err := os.ReadDir(s.dir) // those without a readable description are not listed
	if err != nil {
		return nil, nil, fmt.Errorf("list the snapshots in %s: %w", s.dir, err)
	}
	for _, f := range folders {
		if f.IsDir() && filepath.Ext(f.Name()) != ".tmp" && (newest == nil || indexOf(f.Name()) > newest.Index) {
			damaged = append(damaged, f.Name())
		}
	}
	return newest, damaged, nil
}

// indexOf is the index in the name of a snapshot, which Raft's store makes of term, index and
// time.
func indexOf(name string) uint64 {
	var term, index, msec uint64
	if n, err := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &msec); err != nil || n != 3 {
		return 0
	}
	return index
}

// checkWhole makes sure that the log goes on where the newest readable snapshot ends, and
// reaches what damaged ones held. Raft takes an older snapshot when a newer one is damaged,
// which is right as long as the log has the rest; without it a voter would have forgotten
// what it once acknowledged, and a majority could be made of such.
func (s *snapshots) checkWhole(logs raft.LogStore) error {
	newest, damaged, err := s.readable()
	if err != nil {
		return err
	}
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	from, to := uint64(1), uint64(0)
	if newest != nil {
		from = newest.Index + 1
	}
	for _, name := range damaged {
		to = max(to, indexOf(name))
	}
	if last < max(from, to) && len(damaged) == 0 || first <= from && last >= to {
		return nil
	}
	return &GapError{Dir: filepath.Dir(s.dir), SnapshotEnd: from - 1, Damaged: damaged, LogFirst: first, LogLast: last}
}

// settle makes sure that a node may start from what it has, and puts damaged snapshots
// aside that are newer than all that can be read: Raft does not start where it has snapshots
// and can read none, though the log may have everything, and a leader would send a damaged
// one to followers that lag. What they held is in the log (checkWhole).
func (s *snapshots) settle(logs raft.LogStore, log hclog.Logger) error {
	if err := s.checkWhole(logs); err != nil {
		return err
	}
	newest, damaged, err := s.readable()
	if err != nil || len(damaged) == 0 {
		return err
	}
	aside := filepath.Join(filepath.Dir(s.dir), damagedFolder)
	if err := makeFolder(aside); err != nil {
		return fmt.Errorf("put damaged snapshots aside: %w", err)
	}
	for _, name := range damaged {
		to := filepath.Join(aside, name)
		if err := errors.Join(os.RemoveAll(to), os.Rename(filepath.Join(s.dir, name), to)); err != nil {
			return fmt.Errorf("put the damaged snapshot %s aside: %w", name, err)
		}
	}
	from := uint64(1)
	if newest != nil {
		from = newest.Index + 1
	}
	log.Error("snapshots of the metadata are damaged and were put aside: this node starts from its log, which has all that they held",
		"snapshots", damaged, "folder", aside, "log from", from)
	return errors.Join(syncFolder(aside), syncFolder(s.dir))
}

// GapError says that a node's metadata lacks a part, and what to do.
type GapError struct {
	Dir               string   // the Raft folder
	SnapshotEnd       uint64   // the last index of the newest readable snapshot, 0 for none
	Damaged           []string // newer snapshots
	LogFirst, LogLast uint64   // 0 for an empty log
}

func (e *GapError) Error() string {
	damaged := "none is damaged"
	if len(e.Damaged) > 0 {
		damaged = "damaged: " + strings.Join(e.Damaged, ", ")
	}
	return fmt.Sprintf("the metadata in %s has a gap: what can be read of its snapshots ends at index %d (%s), and its log is from %d to %d: this node would have forgotten what it once acknowledged and can not start. "+
		"The other nodes go on without it as long as they are a majority of the cluster's first nodes. If they are not, stop them and run "+
		"\"weir recover --data FOLDER --keep IDS\" with the folder of each that is to go on. "+
		"A copy of this node's data folder from after it was last stopped, if there is one, may be put back instead; an older one must not",
		e.Dir, e.SnapshotEnd, damaged, e.LogFirst, e.LogLast)
}

// makeFolder makes a folder and those that lead to it, so that a crash of the machine does
// not take their names back.
func makeFolder(path string) error {
	_, err := os.Stat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
