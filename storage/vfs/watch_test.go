package vfs

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// held is a hook that holds up one kind of call until it is closed.
type held struct {
	op      Op
	entered chan struct{}
	over    chan struct{}
}

func hold(op Op) *held {
	return &held{op: op, entered: make(chan struct{}, 2*watchSlots), over: make(chan struct{})}
}

func (h *held) hook(op Op, _ string) error {
	if op == h.op {
		h.entered <- struct{}{}
		<-h.over
	}
	return nil
}

// TestWatchFindsEachCall holds up each kind of call in turn: the Watch knows which it is
// and for how long, and nothing once it has returned.
func TestWatchFindsEachCall(t *testing.T) {
	file := func(call func(File) error) func(FS) error {
		return func(w FS) error {
			f, err := w.Open("d/f", os.O_RDWR, 0)
			if err != nil {
				return err
			}
			err = call(f)
			if e := f.Close(); err == nil {
				err = e
			}
			return err
		}
	}
	create := func(w FS) error {
		f, err := w.Open("d/new", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	for op, call := range map[Op]func(FS) error{
		OpCreate:    create,
		OpOpen:      file(func(File) error { return nil }),
		OpMkdir:     func(w FS) error { return w.Mkdir("d/sub", 0o700) },
		OpRename:    func(w FS) error { return w.Rename("d/f", "d/g") },
		OpRemove:    func(w FS) error { return w.Remove("d/f") },
		OpRemoveAll: func(w FS) error { return w.RemoveAll("d") },
		OpReadDir:   func(w FS) error { _, err := w.ReadDir("d"); return err },
		OpStat:      func(w FS) error { _, err := w.Stat("d/f"); return err },
		OpSyncDir:   func(w FS) error { return w.SyncDir("d") },
		OpSyncAll:   func(w FS) error { return w.SyncAll("d") },
		OpFree:      func(w FS) error { _, _, err := w.Space("d"); return err },
		OpLock: func(w FS) error {
			c, err := w.Lock("d/lock")
			if err != nil {
				return err
			}
			return c.Close()
		},
		OpReadAt:   file(func(f File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }),
		OpWriteAt:  file(func(f File) error { _, err := f.WriteAt([]byte("x"), 0); return err }),
		OpWrite:    file(func(f File) error { _, err := f.Write([]byte("x")); return err }),
		OpSync:     file(func(f File) error { return f.Sync() }),
		OpTruncate: file(func(f File) error { return f.Truncate(1) }),
		OpSize:     file(func(f File) error { _, err := f.Size(); return err }),
		OpClose:    file(func(File) error { return nil }),
	} {
		t.Run(string(op), func(t *testing.T) { findsCall(t, op, call) })
	}
}

func findsCall(t *testing.T, op Op, call func(FS) error) {
	mem := NewMem(1)
	if err := mem.MkdirAll("d", 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Open("d/f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	h := hold(op)
	w := NewWatch(NewFaulty(mem, h.hook))
	done := make(chan error, 1)
	go func() { done <- call(w) }()
	<-h.entered
	want := 30
	if op == OpRemoveAll || op == OpSyncAll {
		want /= bulkShare
	}
	var got Waiting
	for range 31 { // one more than has surely passed
		got = w.Tick()
	}
	if got.Op != op || got.Ticks != want || got.Name == "" {
		t.Errorf("after 31 ticks %+v, want %s for %d", got, op, want)
	}
	close(h.over)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := w.Tick(); got.Ticks != 0 {
		t.Errorf("after it has returned %+v", got)
	}
}

// TestWatchTellsTheLongest has two calls wait, and then more than there are slots.
func TestWatchTellsTheLongest(t *testing.T) {
	h := hold(OpStat)
	w := NewWatch(NewFaulty(NewMem(1), h.hook))
	var calls sync.WaitGroup
	stat := func(name string) {
		calls.Go(func() { _, _ = w.Stat(name) }) // there is no such file
		<-h.entered
	}
	if got := w.Tick(); got != (Waiting{}) {
		t.Errorf("without a call %+v", got)
	}
	stat("first")
	if got := w.Tick(); got.Ticks != 0 {
		t.Errorf("a call that has just begun: %+v", got)
	}
	w.Tick()
	for i := range watchSlots + 10 {
		stat(fmt.Sprint("later", i))
	}
	if got := w.Tick(); got != (Waiting{OpStat, "first", 2}) {
		t.Errorf("got %+v, want the first for 2 ticks", got)
	}
	close(h.over)
	calls.Wait()
	if got := w.Tick(); got != (Waiting{}) {
		t.Errorf("after all have returned %+v", got)
	}
}

// TestWatchCostsNoMemory counts the allocations of calls on an open file.
func TestWatchCostsNoMemory(t *testing.T) {
	f, err := NewWatch(OS()).Open(t.TempDir()+"/f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the test is over
	p := make([]byte, 100)
	n := testing.AllocsPerRun(100, func() {
		if _, err := f.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		BeginSend(f).End()
	})
	if n != 0 {
		t.Errorf("%v allocations a round, want none", n)
	}
	if _, ok := f.Fd(); !ok {
		t.Error("the descriptor cannot be had for sendfile")
	}
}

// BenchmarkWatchedCall is what a call costs beyond itself.
func BenchmarkWatchedCall(b *testing.B) {
	w := NewWatch(NewMem(1))
	name := "f"
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.begin(numWriteAt, &name).End()
		}
	})
}
