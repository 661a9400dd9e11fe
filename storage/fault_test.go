package storage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// try runs a step of a world and returns the error that an injected fault made
// it end with.
func (w *world) try(step func()) (err error) {
	defer func() {
		if s, ok := recover().(stopped); ok {
			err = s.err
		}
	}()
	step()
	return nil
}

// faultyWorld is a world whose n-th call that changes the disk fails.
func faultyWorld(t *testing.T, seed int64, n int, fault error) (w *world, site *string) {
	w = newWorld(t, seed)
	site = new(string)
	w.inject = func(op vfs.Op, name string) error {
		if w.points == n {
			*site = fmt.Sprintf("%s %s", op, name)
			if op == vfs.OpWriteAt {
				return &vfs.Short{N: 30, Err: fault}
			}
			return fault
		}
		return nil
	}
	return w, site
}

// script runs a world until a step fails.
func (w *world) script(steps int) (int, error) {
	err := w.try(func() {
		w.create("a")
		w.create("b")
	})
	for i := range steps {
		if err != nil {
			return i, err
		}
		err = w.try(w.step)
	}
	return steps, err
}

const faultSteps = 45

// H32: TestEIOEverywhere lets every call that changes the disk fail once. The folder
// goes offline, refuses everything, and has lost nothing when it is opened again.
func TestEIOEverywhere(t *testing.T) {
	offline := 0
	for n := 1; ; n++ {
		w, site := faultyWorld(t, 7, n, syscall.EIO)
		_, err := w.script(faultSteps)
		if *site == "" {
			break
		}
		if w.d.Offline() == nil {
			if err != nil {
				t.Fatalf("%s: %v, but the folder is not offline", *site, err)
			}
			continue // nothing that is needed: a file to be removed, a temporary one
		}
		offline++
		w.refuses(*site)
		w.armed = false
		w.inspect("EIO at "+*site+" while "+w.doing, w.mem.ProcessClone(), true)
	}
	if offline < 100 {
		t.Fatalf("only %d faults took the folder offline", offline)
	}
}

// refuses checks that an offline folder does nothing more.
func (w *world) refuses(site string) {
	w.t.Helper()
	before := w.points
	for _, l := range w.d.Logs() {
		_, err1 := l.AppendLeader(makeBatch(1, 1, 1), 1000)
		_, err2 := l.Read(l.Start(), l.End(), 100)
		run := makeBatch(1, 1, 1)
		run.Assign(l.End(), 1000)
		for i, err := range []error{err1, err2, l.AppendReplica(batch.Run(run), 1000), l.Flush(), l.ResetTo(3), w.d.Delete(l)} {
			if !errors.Is(err, ErrOffline) {
				w.t.Fatalf("EIO at %s: call %d gives %v", site, i, err)
			}
		}
	}
	if _, err := w.d.Create("c", 0, ID{}); !errors.Is(err, ErrOffline) {
		w.t.Fatalf("EIO at %s: create gives %v", site, err)
	}
	if err := w.d.Close(&CleanStop{1}); !errors.Is(err, ErrOffline) {
		w.t.Fatalf("EIO at %s: close gives %v", site, err)
	}
	if w.points > before {
		w.t.Fatalf("EIO at %s: the disk was changed afterwards", site)
	}
}

// TestENOSPCEverywhere lets every call that changes the disk find it full, once.
// The call is refused with ErrFull at most, the log is what it was, and all goes
// on afterwards.
func TestENOSPCEverywhere(t *testing.T) {
	refused := 0
	for n := 1; ; n++ {
		w, site := faultyWorld(t, 7, n, syscall.ENOSPC)
		done, err := w.script(faultSteps)
		if *site == "" {
			break
		}
		if mayEndIn(*site) {
			continue
		}
		if err := w.d.Offline(); err != nil {
			t.Fatalf("ENOSPC at %s while %s: %v", *site, w.doing, err)
		}
		if err != nil {
			refused++
			if !errors.Is(err, ErrFull) {
				t.Fatalf("ENOSPC at %s while %s: %v", *site, w.doing, err)
			}
			w.goOn(*site)
		}
		if _, err := w.rest(faultSteps - done); err != nil {
			t.Fatalf("after ENOSPC at %s: %s: %v", *site, w.doing, err)
		}
		if err := w.d.Close(&CleanStop{1}); err != nil {
			t.Fatalf("after ENOSPC at %s: close: %v", *site, err)
		}
		if err := Check(w.mem, testDir); err != nil {
			t.Fatalf("after ENOSPC at %s: %v", *site, err)
		}
		w.armed = false
		w.inspect("after ENOSPC at "+*site, w.mem.ProcessClone(), true)
	}
	if refused < 20 {
		t.Fatalf("only %d calls were refused", refused)
	}
}

// mayEndIn tells the calls that need no room and do not fail for want of it.
func mayEndIn(site string) bool {
	op, _, _ := strings.Cut(site, " ")
	switch vfs.Op(op) {
	case vfs.OpSync, vfs.OpSyncDir, vfs.OpSyncAll, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpTruncate:
		return true
	}
	return false
}

// goOn takes the live logs, which must be legal, for the models.
func (w *world) goOn(site string) {
	w.t.Helper()
	for topic, m := range w.models {
		l := w.d.Log(topic, 0)
		if l == nil {
			if m.mustBe {
				w.t.Fatalf("ENOSPC at %s: %s is gone", site, topic)
			}
			w.create(topic)
			continue
		}
		got, err := readLog(l, 700)
		if err != nil {
			w.t.Fatalf("ENOSPC at %s while %s: %v", site, w.doing, err)
		}
		var errs []error
		for _, h := range m.legal {
			err := fits(l, got, h, m.durable, min(l.End(), h.end()), true)
			if err == nil {
				m.legal = []history{h.cut(l.End())}
				errs = nil
				break
			}
			errs = append(errs, err)
		}
		if len(errs) > 0 {
			w.t.Fatalf("ENOSPC at %s while %s: %v", site, w.doing, errors.Join(errs...))
		}
		m.mustBe, m.mayBe = true, true
		m.epoch++
		m.resequence()
	}
	for _, topic := range []string{"a", "b"} {
		if w.models[topic] == nil {
			w.create(topic)
		}
	}
}

// rest goes on with a script after a fault.
func (w *world) rest(steps int) (int, error) {
	for i := range steps {
		if err := w.try(w.step); err != nil {
			return i, err
		}
	}
	return steps, nil
}

// TestFullDisk fills a disk for good: appends are refused, everything else goes
// on, and after a deletion appends do too.
func TestFullDisk(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l, other := mustCreate(t, d, "t", 0), mustCreate(t, d, "other", 0)
	for range 50 {
		mustAppend(t, other, makeBatch(1, 1000, 100), 1)
		mustAppend(t, l, makeBatch(1, 1000, 100), 1)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	m.SetCapacity(m.Used() + 500)
	var err error
	for err == nil {
		_, err = l.AppendLeader(makeBatch(1, 1000, 100), 1)
	}
	wantErr(t, err, ErrFull)
	end := l.End()
	for range 3 {
		_, err = l.AppendLeader(makeBatch(1, 1000, 100), 1)
		wantErr(t, err, ErrFull)
	}
	if err := errors.Join(l.Flush(), d.Tick()); err != nil {
		t.Fatalf("a full disk stops a flush: %v", err)
	}
	if got, err := readLog(l, 1000); err != nil || len(got) != int(end) {
		t.Fatalf("read %d of %d: %v", len(got), end, err)
	}
	if err := d.Delete(other); err != nil {
		t.Fatal(err)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if a := mustAppend(t, l, makeBatch(1, 1000, 100), 1); a.First != end {
		t.Fatalf("appended at %d, want %d", a.First, end)
	}
	mustClose(t, d)
	if err := Check(m, testDir); err != nil {
		t.Fatal(err)
	}
}

// TestReserve refuses appends before the disk is full.
func TestReserve(t *testing.T) {
	m := vfs.NewMem(1)
	m.SetCapacity(10_000)
	o := testOptions()
	o.MinFreeBytes = 9_000
	d := mustOpen(t, m, o)
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, makeBatch(1, 1000, 900), 1)
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if total, free := d.Space(); free == 0 || free >= 9_000 || total <= free {
		t.Fatalf("%d of %d bytes free", free, total)
	}
	_, err := l.AppendLeader(makeBatch(1, 1000, 1), 1)
	wantErr(t, err, ErrFull)
	m.SetCapacity(-1)
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, makeBatch(1, 1000, 1), 1)
	mustClose(t, d)
}
