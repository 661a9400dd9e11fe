package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTaint keeps files in a tainted folder and sees the errors that the hook gives.
func TestTaint(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	below, mount := t.TempDir(), t.TempDir()
	taint, err := newTaint(below, mount)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = taint.Close()
		}
	}()
	folder := filepath.Join(mount, "a.new")
	must(t, os.MkdirAll(folder, 0o755))
	f, err := os.OpenFile(filepath.Join(folder, "log"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o644)
	must(t, err)
	text := bytes.Repeat([]byte("0123456789"), 100<<10)
	_, err = f.WriteAt(text, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, os.Rename(folder, filepath.Join(mount, "a")))
	_, err = f.WriteAt([]byte("x"), 5)
	must(t, err)
	text[5] = 'x'
	got, err := os.ReadFile(filepath.Join(mount, "a", "log"))
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("read %d bytes back, %v, want %d", len(got), err, len(text))
	}
	must(t, f.Truncate(7))
	if st, err := os.Stat(filepath.Join(below, "a", "log")); err != nil || st.Size() != 7 {
		t.Fatalf("below: %v, %v, want 7 bytes", st, err)
	}
	// A name that is used again is another file.
	must(t, os.Remove(filepath.Join(mount, "a", "log")))
	must(t, os.WriteFile(filepath.Join(mount, "a", "log"), []byte("new"), 0o644))
	got = make([]byte, 7)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "01234x6" {
		t.Errorf("the removed file reads %q, %v", got, err)
	}
	must(t, f.Close())
	for i := range 300 {
		must(t, os.WriteFile(filepath.Join(mount, fmt.Sprintf("file-%03d-%s", i, strings.Repeat("n", 100))), nil, 0o644))
	}
	if entries, err := os.ReadDir(mount); err != nil || len(entries) != 301 {
		t.Fatalf("%d entries, %v, want 301", len(entries), err)
	}
	hurt(t, taint, filepath.Join(mount, "a", "log"))
	must(t, taint.Close())
	closed = true
}

// hurt checks the hook's errors.
func hurt(t *testing.T, taint *Taint, path string) {
	t.Helper()
	taint.Set(func(op, path string) error {
		if path != "a/log" {
			return nil
		}
		return map[string]error{"write": syscall.ENOSPC, "sync": syscall.EIO, "rename": syscall.EROFS}[op]
	})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	if _, err := f.WriteAt([]byte("y"), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	if err := os.Rename(path, path+"2"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("rename: %v", err)
	}
	taint.Set(nil)
	must(t, os.Rename(path, path+"2"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
