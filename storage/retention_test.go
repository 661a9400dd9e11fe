package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// TestRetentionChoice is the choice of victims: segments of 100 bytes that end at
// 10, 20, …, at the time 1000 (ms).
func TestRetentionChoice(t *testing.T) {
	const unknown = 0
	type seg struct{ newest, written int64 }
	for _, c := range []struct {
		name  string
		r     Retention
		segs  []seg
		limit batch.Offset
		want  batch.Offset
	}{
		{"no limits", RetainAll(), []seg{{1, 1}, {1, 1}}, 20, 0},
		{"no segments", Retention{AgeMs: 0, Bytes: 0}, nil, 0, 0},
		{"all young", Retention{AgeMs: 100, Bytes: -1}, []seg{{950, 950}, {990, 990}}, 20, 0},
		{"exactly as old as allowed", Retention{AgeMs: 100, Bytes: -1}, []seg{{900, 900}, {990, 990}}, 20, 0},
		{"the first is too old", Retention{AgeMs: 100, Bytes: -1}, []seg{{899, 899}, {990, 990}}, 20, 10},
		{"an old one behind a young one stays", Retention{AgeMs: 100, Bytes: -1}, []seg{{950, 950}, {10, 10}, {990, 990}}, 30, 0},
		{"all too old, the last one too", Retention{AgeMs: 100, Bytes: -1}, []seg{{10, 10}, {20, 20}}, 20, 20},
		{"never past the high watermark", Retention{AgeMs: 100, Bytes: -1}, []seg{{10, 10}, {20, 20}, {30, 30}}, 25, 20},
		{"a record of the future is as old as its file", Retention{AgeMs: 100, Bytes: -1}, []seg{{1 << 50, 500}, {990, 990}}, 20, 10},
		{"a record of the future in a young file", Retention{AgeMs: 100, Bytes: -1}, []seg{{1 << 50, 950}, {990, 990}}, 20, 0},
		{"a record of the future in a file of unknown age", Retention{AgeMs: 100, Bytes: -1}, []seg{{1 << 50, unknown}, {990, 990}}, 20, 0},
		{"records without a time are as old as their file", Retention{AgeMs: 100, Bytes: -1}, []seg{{-1, 500}, {-1, 950}}, 20, 10},
		{"records of the past in a closed segment", Retention{AgeMs: 100, Bytes: -1}, []seg{{1, 999}, {990, 990}}, 20, 10},
		{"records of the past where they are being written", Retention{AgeMs: 100, Bytes: -1}, []seg{{1, 999}}, 10, 0},
		{"the last one of unknown age", Retention{AgeMs: 100, Bytes: -1}, []seg{{1, unknown}}, 10, 0},
		{"no age at all", Retention{AgeMs: 0, Bytes: -1}, []seg{{999, 999}, {999, 999}}, 20, 20},
		{"an age beyond all time", Retention{AgeMs: 1<<63 - 1, Bytes: -1}, []seg{{0, 1}, {990, 990}}, 20, 0},
		{"too large by less than a segment", Retention{AgeMs: -1, Bytes: 201}, []seg{{990, 990}, {990, 990}, {990, 990}}, 30, 0},
		{"too large by a segment", Retention{AgeMs: -1, Bytes: 200}, []seg{{990, 990}, {990, 990}, {990, 990}}, 30, 10},
		{"too large by more than is committed", Retention{AgeMs: -1, Bytes: 0}, []seg{{990, 990}, {990, 990}, {990, 990}}, 15, 10},
		{"no size at all", Retention{AgeMs: -1, Bytes: 0}, []seg{{990, 990}, {990, 990}}, 20, 20},
		{"one for its size, the next for its age", Retention{AgeMs: 100, Bytes: 200}, []seg{{950, 950}, {10, 10}, {990, 990}}, 30, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			var segs []stretch
			for i, s := range c.segs {
				segs = append(segs, stretch{end: batch.Offset(10 * (i + 1)), size: 100, newest: s.newest})
			}
			got := c.r.start(segs, 0, c.limit, 1000, func(i int) int64 { return c.segs[i].written })
			if got != c.want {
				t.Errorf("start %d, want %d", got, c.want)
			}
		})
	}
	empty := []stretch{{end: 10, size: 100, newest: 1}, {end: 10}}
	if got := (Retention{AgeMs: 100, Bytes: 0}).start(empty, 0, 10, 1000, func(int) int64 { return 1 }); got != 10 {
		t.Errorf("an empty last segment: start %d, want 10", got)
	}
	if got := RetainAll().start(empty, 7, 10, 1000, nil); got != 7 {
		t.Errorf("the start went from 7 to %d", got)
	}
}

// logFiles are the names of the segment files of a log.
func logFiles(t *testing.T, l *Log) []string {
	t.Helper()
	infos, err := l.d.fs.ReadDir(l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, info := range infos {
		if strings.HasSuffix(info.Name(), logSuffix) {
			names = append(names, strings.TrimLeft(info.Name(), "0"))
		}
	}
	slices.Sort(names)
	return names
}

// onDisk opens a data folder of the real file system whose clock is now.
func onDisk(t *testing.T, now *time.Time, path string) *Dir {
	t.Helper()
	o := testOptions()
	o.SegmentBytes = 250
	o.Now = func() time.Time { return *now }
	d, err := OpenDir(vfs.OS(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// aged sets the time at which a segment's file was last written.
func aged(t *testing.T, l *Log, segment int, at time.Time) {
	t.Helper()
	path := filepath.Join(l.Dir(), fileName(l.view.Load().segs[segment].base, logSuffix))
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestExpiredByAge(t *testing.T) {
	now := time.Now()
	d := onDisk(t, &now, t.TempDir())
	l := mustCreate(t, d, "t", 0)
	for i := range 4 { // a segment each, whose file is as old as its record
		mustAppend(t, l, makeBatch(1, now.UnixMilli()+int64(i), 200), 0)
		aged(t, l, i, now.Add(time.Duration(i)*time.Millisecond))
	}
	hour := Retention{AgeMs: time.Hour.Milliseconds(), Bytes: -1}
	if to, any := l.Expired(hour, 4); any || to != 0 {
		t.Fatalf("fresh: start %d, %v", to, any)
	}
	now = now.Add(time.Hour + 2*time.Millisecond) // the files are as old as their records
	if to, any := l.Expired(hour, 4); !any || to != 2 {
		t.Fatalf("after an hour: start %d, %v; want 2", to, any)
	}
	now = now.Add(time.Hour)
	aged(t, l, 3, now) // still being written to
	if to, _ := l.Expired(hour, 4); to != 3 {
		t.Fatalf("after two hours: start %d, want 3", to)
	}
	aged(t, l, 3, now.Add(-2*time.Hour))
	if to, _ := l.Expired(hour, 4); to != 4 {
		t.Fatalf("with a silent producer: start %d, want 4", to)
	}
	if to, _ := l.Expired(hour, 2); to != 2 {
		t.Fatalf("with the high watermark at 2: start %d", to)
	}
	mustClose(t, d)
}

// TestRaisedStart: files go in the background, all of them when all records are
// gone, and the log goes on where it was, before and after a restart.
func TestRaisedStart(t *testing.T) {
	now, path := time.Now(), t.TempDir()
	d := onDisk(t, &now, path)
	l := mustCreate(t, d, "t", 0)
	for i := range 4 {
		mustAppend(t, l, producerBatchOf(7, 0, int32(4*i), 4), 1)
	}
	files := logFiles(t, l)
	if err := l.RaiseStart(9); err != nil {
		t.Fatal(err)
	}
	if l.Start() != 9 || len(logFiles(t, l)) != len(files) {
		t.Errorf("at once: start %d, files %v", l.Start(), logFiles(t, l))
	}
	wantErr(t, l.RaiseStart(17), ErrOffsetOutOfRange)
	l.maint.take()
	err := l.letGoBelowStart()
	l.maint.give()
	if got := logFiles(t, l); err != nil || len(got) != len(files) {
		t.Errorf("%v: files went before the start was written down: %v", err, got)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if got := logFiles(t, l); got[0] == ".log" || len(got) >= len(files) {
		t.Errorf("after a tick: %v of %v", got, files)
	}
	if err := l.RaiseStart(16); err != nil {
		t.Fatal(err)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if got := logFiles(t, l); !slices.Equal(got, []string{"16.log"}) || l.Size() != 0 || l.Start() != 16 || l.End() != 16 {
		t.Errorf("with all records gone: %v, size %d, %d to %d", got, l.Size(), l.Start(), l.End())
	}
	mustClose(t, d)

	d = onDisk(t, &now, path)
	l = d.Log("t", 0)
	if l.Start() != 16 || l.End() != 16 || len(l.Producers()) != 1 {
		t.Fatalf("after a restart: %d to %d, producers %v", l.Start(), l.End(), l.Producers())
	}
	if a := mustAppend(t, l, producerBatchOf(7, 0, 12, 4), 1); !a.Duplicate || a.First != 12 {
		t.Errorf("the last batch sent again: %+v; want the duplicate at 12", a)
	}
	_, err = l.AppendLeader(producerBatchOf(7, 0, 20, 4), 1)
	wantErr(t, err, ErrOutOfOrderSequence)
	if a := mustAppend(t, l, producerBatchOf(7, 0, 16, 4), 1); a.First != 16 {
		t.Errorf("the next batch is at %d, want 16", a.First)
	}
	mustClose(t, d)
}

// TestTrimRemembersProducers: what was trimmed is still recognised when it is sent again after
// a crash before the next checkpoint, whose recovery point a start goes by.
func TestTrimRemembersProducers(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, producerBatchOf(7, 0, 0, 3), 0)
	for seq := int32(0); len(l.view.Load().segs) < 3; seq += 4 {
		mustAppend(t, l, producerBatchOf(8, 0, seq, 4), 0)
	}
	if err := l.RaiseStart(l.view.Load().segs[2].base); err != nil {
		t.Fatal(err)
	}
	if err := d.Tick(); err != nil {
		t.Fatal(err)
	}
	if n := len(l.view.Load().segs); n != 1 {
		t.Fatalf("%d segments are left, want 1", n)
	}
	d = mustOpen(t, m.ProcessClone(), testOptions())
	l = d.Log("t", 0)
	if a := mustAppend(t, l, producerBatchOf(7, 0, 0, 3), 0); !a.Duplicate || a.First != 0 {
		t.Errorf("a batch below the start sent again: %+v, want the duplicate at 0", a)
	}
}

// TestFailedTrimRemembersProducers: the same where the new start is written down, and the
// snapshot of the producers can not be. The segments stay until a trim that can.
func TestFailedTrimRemembersProducers(t *testing.T) {
	m, o := vfs.NewMem(1), testOptions()
	o.SnapshotBytes = 1 << 30 // none but at the borders of segments
	started := false
	d := mustOpen(t, vfs.NewFaulty(m, func(op vfs.Op, name string) error {
		started = started || op == vfs.OpRename && strings.Contains(name, startFile)
		if started && strings.Contains(name, snapshotSuffix) {
			return syscall.EIO
		}
		return nil
	}), o)
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, producerBatchOf(7, 0, 0, 3), 0)
	wantErr(t, l.AdvanceStart(3), ErrOffline)
	for range 2 {
		m = m.ProcessClone()
		d = mustOpen(t, m, o)
		l = d.Log("t", 0)
		if a := mustAppend(t, l, producerBatchOf(7, 0, 0, 3), 0); l.Start() != 3 || !a.Duplicate || a.First != 0 {
			t.Errorf("the log starts at %d; a batch below that sent again: %+v, want the duplicate at 0", l.Start(), a)
		}
		if err := l.AdvanceStart(3); err != nil {
			t.Fatal(err)
		}
		if got := logFiles(t, l); !slices.Equal(got, []string{"3.log"}) {
			t.Errorf("files %v", got)
		}
	}
}

// TestAdvancedToTheEnd: a trim to the end frees the disk before it returns.
func TestAdvancedToTheEnd(t *testing.T) {
	now := time.Now()
	d := onDisk(t, &now, t.TempDir())
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, makeBatch(5, 1, 10), 3)
	if err := l.AdvanceStart(5); err != nil {
		t.Fatal(err)
	}
	if got := logFiles(t, l); !slices.Equal(got, []string{"5.log"}) {
		t.Errorf("files %v", got)
	}
	if e, end := l.EpochEnd(3); end != 5 {
		t.Errorf("epoch %d ends at %d", e, end)
	}
	if a := mustAppend(t, l, makeBatch(1, 1, 10), 3); a.First != 5 {
		t.Errorf("the next record is at %d", a.First)
	}
	mustClose(t, d)
}

func TestSegmentAge(t *testing.T) {
	now, path := time.Now(), t.TempDir()
	d := onDisk(t, &now, path)
	l := mustCreate(t, d, "t", 0)
	l.SetSegmentBytes(1 << 20)
	l.SetSegmentAge(time.Second)
	add := func(ts int64, segments int) {
		t.Helper()
		mustAppend(t, l, makeBatch(1, ts, 10), 0)
		if got := len(l.view.Load().segs); got != segments {
			t.Errorf("time %d: %d segments, want %d", ts, got, segments)
		}
	}
	add(5000, 1)
	add(6000, 1) // exactly as much later as allowed
	add(1, 1)    // a straggler
	add(6001, 2)
	add(7001, 2)
	mustClose(t, d)
	d = onDisk(t, &now, path)
	l = d.Log("t", 0)
	l.SetSegmentBytes(1 << 20)
	add(9000, 2) // the age is not set
	l.SetSegmentAge(time.Second)
	add(7001, 2) // counted from the first batch, which is read again
	add(7002, 3)
	run := makeBatch(1, 9000, 10)
	run.Assign(l.End(), 0)
	if err := l.AppendReplica(batch.Run(run), 0); err != nil {
		t.Fatal(err)
	}
	if got := len(l.view.Load().segs); got != 4 {
		t.Errorf("a follower has %d segments, want 4", got)
	}
	mustClose(t, d)
}

func TestProducersAreListed(t *testing.T) {
	d := mustOpen(t, vfs.NewMem(1), testOptions())
	l := mustCreate(t, d, "t", 0)
	mustAppend(t, l, producerBatchOf(9, 2, 0, 3), 0)
	mustAppend(t, l, producerBatchOf(7, 0, 0, 1), 0)
	mustAppend(t, l, producerBatchOf(9, 2, 3, 2), 0)
	got := fmt.Sprint(l.Producers())
	if want := fmt.Sprint([]Producer{{7, 0, 0, 1000}, {9, 2, 4, 1001}}); got != want {
		t.Errorf("producers %v, want %v", got, want)
	}
	mustClose(t, d)
}

// raise raises the start of a log; a crash before the next tick may forget it.
func (w *world) raise(topic string, start batch.Offset) {
	m, l := w.models[topic], w.d.Log(topic, 0)
	w.doing = fmt.Sprintf("raise the start of %s from %d to %d of %d", topic, l.Start(), start, l.End())
	before := m.now()
	after := history{start: start, batches: before.batches}
	m.legal = []history{before, after}
	w.must(l.RaiseStart(start))
	w.doing += ", tick"
	w.must(w.d.Tick())
	m.legal = []history{after}
	m.durable = l.Flushed()
}

// TestCrashDuringRetention crashes the disk before every call that changes it
// while old records go, sometimes all of them.
func TestCrashDuringRetention(t *testing.T) {
	seeds.Alone(t)
	points := 0
	for _, seed := range []int64{1, 2, 3, 1796002461517435695, seeds.For(t)} {
		w := newWorld(t, seed)
		w.create("a")
		l := w.d.Log("a", 0)
		for range 8 {
			for range 1 + w.rng.Intn(8) {
				w.append("a")
			}
			if w.rng.Intn(2) == 0 {
				w.flush("a")
			}
			start := l.End()
			if w.rng.Intn(3) > 0 {
				start = l.Start() + batch.Offset(w.rng.Int63n(int64(l.End()-l.Start())+1))
			}
			w.raise("a", start)
		}
		w.armed = false
		if err := w.d.Close(nil); err != nil {
			t.Fatal(err)
		}
		points += w.points
	}
	t.Logf("%d crash points, 4 crashes each", points)
}

func BenchmarkExpiredIdle(b *testing.B) {
	d := mustOpen(b, vfs.NewMem(1), testOptions())
	l := mustCreate(b, d, "t", 0)
	mustAppend(b, l, makeBatch(1, time.Now().UnixMilli(), 10), 0)
	r := Retention{AgeMs: time.Hour.Milliseconds(), Bytes: 1 << 30}
	b.ReportAllocs()
	for b.Loop() {
		if _, any := l.Expired(r, 1); any {
			b.Fatal("expired")
		}
	}
	mustClose(b, d)
}
