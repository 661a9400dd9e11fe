package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// each runs a test on the real file system and on the one in memory, which must
// agree on everything but crashes.
func each(t *testing.T, f func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem(1)
		if err := m.MkdirAll("/a/b", 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, m, "/a/b")
	})
	t.Run("faulty", func(t *testing.T) {
		m := NewMem(1)
		if err := m.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, NewFaulty(m, func(Op, string) error { return nil }), "d")
	})
	t.Run("watch", func(t *testing.T) { f(t, NewWatch(OS()), t.TempDir()) })
}

func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, fsys FS, name string) string {
	t.Helper()
	p, err := ReadFile(fsys, name)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return string(p)
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "file")
		f := create(t, fsys, name, "hello")
		if _, err := f.WriteAt([]byte("LL"), 2); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("!")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("z"), 8); err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, fsys, name), "heLLo!\x00\x00z"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if err := f.Truncate(3); err != nil {
			t.Fatal(err)
		}
		if size, err := f.Size(); size != 3 || err != nil {
			t.Fatalf("size %d, %v", size, err)
		}
		if err := f.Truncate(5); err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, fsys, name), "heL\x00\x00"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		p := make([]byte, 9)
		if n, err := f.ReadAt(p, 2); n != 3 || !errors.Is(err, io.EOF) {
			t.Fatalf("read %d, %v", n, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("second close: %v", err)
		}
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		f := create(t, fsys, a, "1")
		if _, err := fsys.Open(a, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("exclusive create: %v", err)
		}
		if _, err := fsys.Open(b, os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open: %v", err)
		}
		if err := create(t, fsys, b, "2").Close(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Rename(a, b); err != nil {
			t.Fatal(err)
		}
		if got := content(t, fsys, b); got != "1" {
			t.Fatalf("after rename: %q", got)
		}
		if err := fsys.Remove(b); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if _, err := f.ReadAt(p, 0); err != nil || p[0] != '1' {
			t.Fatalf("a removed file is readable through its handle: %v %q", err, p)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Remove(b); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("remove: %v", err)
		}
		if err := fsys.MkdirAll(filepath.Join(dir, "x/y"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := create(t, fsys, filepath.Join(dir, "x/y/z"), "").Close(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Remove(filepath.Join(dir, "x")); err == nil {
			t.Fatal("a folder with content was removed")
		}
		entries, err := fsys.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "x" || !entries[0].IsDir() {
			t.Fatalf("entries %v, %v", entries, err)
		}
		if err := errors.Join(fsys.SyncDir(dir), fsys.SyncAll(dir)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fsys.RemoveAll(filepath.Join(dir, "x")), fsys.RemoveAll(filepath.Join(dir, "x"))); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Stat(filepath.Join(dir, "x")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("stat: %v", err)
		}
		if total, free, err := fsys.Space(dir); err != nil || free == 0 || total <= free {
			t.Fatalf("free %d of %d, %v", free, total, err)
		}
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "lock")
		l, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
			t.Fatalf("second lock: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// exists tells whether a crash left a file.
func exists(fsys FS, name string) bool {
	_, err := fsys.Stat(name)
	return err == nil
}

func TestCrashLosesWhatWasNotSynced(t *testing.T) {
	m := NewMem(1)
	f := create(t, m, "named", "old")
	if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	g := create(t, m, "unnamed", "synced")
	if err := g.Sync(); err != nil {
		t.Fatal(err)
	}
	create(t, m, "named.tmp", "x")
	if err := m.Remove("named.tmp"); err != nil {
		t.Fatal(err)
	}
	c := m.CrashClone(0)
	if got := content(t, c, "named"); got != "old" {
		t.Fatalf("got %q", got)
	}
	if exists(c, "unnamed") {
		t.Fatal("a name that was not synced survived")
	}
	if c.BootID() == m.BootID() {
		t.Fatal("the boot id survived")
	}
	p := m.ProcessClone()
	if got := content(t, p, "named"); got != "oldnew" {
		t.Fatalf("a killed process lost %q", got)
	}
	if !exists(p, "unnamed") || p.BootID() != m.BootID() {
		t.Fatal("a killed process lost a name or the boot id")
	}
	if _, err := f.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
	if content(t, p, "named") != "oldnew" || content(t, c, "named") != "old" {
		t.Fatal("a clone shares bytes with its origin")
	}
	if err := m.SyncAll("/"); err != nil {
		t.Fatal(err)
	}
	c = m.CrashClone(0)
	if content(t, c, "named") != "oldnew!" || content(t, c, "unnamed") != "synced" {
		t.Fatal("SyncAll did not sync all")
	}
}

func TestCrashKeepsRenamesWhole(t *testing.T) {
	kept := map[string]int{}
	for seed := int64(1); seed <= 200; seed++ {
		m := NewMem(seed)
		f := create(t, m, "x.tmp", "content")
		if err := errors.Join(f.Sync(), f.Close(), m.SyncDir("/"), m.Rename("x.tmp", "x")); err != nil {
			t.Fatal(err)
		}
		c := m.CrashClone(seed)
		old, renamed := exists(c, "x.tmp"), exists(c, "x")
		if old == renamed {
			t.Fatalf("seed %d: old name %v, new name %v", seed, old, renamed)
		}
		if renamed {
			kept["new"]++
		} else {
			kept["old"]++
		}
	}
	if kept["new"] == 0 || kept["old"] == 0 {
		t.Fatalf("crashes chose only %v", kept)
	}
}

func TestCrashTearsWrites(t *testing.T) {
	whole := bytes.Repeat([]byte("abcdefgh"), 64)
	seen := map[string]bool{}
	for seed := int64(1); seed <= 300; seed++ {
		m := NewMem(seed)
		f := create(t, m, "x", "")
		if err := m.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(whole, 0); err != nil {
			t.Fatal(err)
		}
		got := []byte(content(t, m.CrashClone(seed), "x"))
		switch {
		case len(got) == 0:
			seen["lost"] = true
		case bytes.Equal(got, whole):
			seen["kept"] = true
		case bytes.HasPrefix(whole, got):
			seen["torn"] = true
		case len(got) == len(whole) && len(bytes.Trim(got, "\x00")) == 0:
			seen["zeros"] = true
		default:
			t.Fatalf("seed %d: impossible content %q", seed, got)
		}
		again := []byte(content(t, m.CrashClone(seed), "x"))
		if !bytes.Equal(got, again) {
			t.Fatalf("seed %d: a crash is not reproducible", seed)
		}
	}
	if len(seen) != 4 {
		t.Fatalf("crashes chose only %v", seen)
	}
}

func TestCapacity(t *testing.T) {
	m := NewMem(1)
	m.SetCapacity(10)
	f := create(t, m, "x", "12345678")
	if n, err := f.WriteAt([]byte("abcd"), 8); n != 2 || err == nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if _, err := m.Open("y", os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		t.Fatal("a file was made on a full disk")
	}
	if err := f.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if total, free, _ := m.Space("/"); free != 6 || total != 10 {
		t.Fatalf("free %d of %d", free, total)
	}
	if err := m.Remove("x"); err != nil {
		t.Fatal(err)
	}
	if m.Used() != 0 {
		t.Fatalf("used %d", m.Used())
	}
}

func TestFaulty(t *testing.T) {
	boom := errors.New("boom")
	fail := map[Op]error{}
	fsys := NewFaulty(NewMem(1), func(op Op, _ string) error { return fail[op] })
	f := create(t, fsys, "x", "12")
	fail[OpSync] = boom
	if err := f.Sync(); !errors.Is(err, boom) {
		t.Fatalf("sync: %v", err)
	}
	fail[OpWriteAt] = &Short{N: 3, Err: boom}
	if n, err := f.WriteAt([]byte("abcdef"), 2); n != 3 || !errors.Is(err, boom) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if got := content(t, fsys, "x"); got != "12abc" {
		t.Fatalf("got %q", got)
	}
	fail[OpRename] = boom
	if err := fsys.Rename("x", "y"); !errors.Is(err, boom) {
		t.Fatalf("rename: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
