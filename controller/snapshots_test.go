package controller

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// takeSnapshot writes a snapshot; spoil may change its file before it is complete.
func takeSnapshot(t *testing.T, s *snapshots, index uint64, spoil func(folder string)) (string, error) {
	t.Helper()
	sink, err := s.Create(raft.SnapshotVersionMax, index, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// More than the store's buffer, so that part of it is on disk already.
	if _, err := io.WriteString(sink, strings.Repeat("metadata", 10_000)); err != nil {
		t.Fatal(err)
	}
	spoil(filepath.Join(s.dir, sink.ID()+".tmp"))
	err = sink.Close()
	if again := sink.Close(); (again == nil) != (err == nil) {
		t.Errorf("closed twice: %v, then %v", err, again)
	}
	return sink.ID(), err
}

// TestSnapshotIsReadBack changes a byte of a snapshot on its way to the disk: it does not
// count, and the one before stays the newest.
func TestSnapshotIsReadBack(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), testLogger(t, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	good, err := takeSnapshot(t, s, 5, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	bad, err := takeSnapshot(t, s, 9, func(folder string) {
		f, err := os.OpenFile(filepath.Join(folder, "state.bin"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{'X'}, 3); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), bad) {
		t.Fatalf("a spoilt snapshot was taken: %v", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].ID != good {
		t.Errorf("snapshots after that: %v, %v", list, err)
	}
}

func TestSnapshotGivenUp(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), testLogger(t, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	sink, err := s.Create(raft.SnapshotVersionMax, 5, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err == nil {
		t.Error("a snapshot that was given up is complete")
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("snapshots: %v, %v", list, err)
	}
}

func TestMakeFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 {
		if err := makeFolder(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeFolder(filepath.Join(path, "file", "d")); err == nil {
		t.Error("a folder was made below a file")
	}
}
