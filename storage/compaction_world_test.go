package storage

import (
	"bytes"
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

// fact is one record that was appended.
type fact struct {
	offset batch.Offset
	time   int64
	epoch  batch.Epoch
	key    string
	value  []byte // nil deletes
	put    int64  // when, by the clock
}

// compactWorld is a log under compaction beside all that was ever appended to it.
type compactWorld struct {
	t     testing.TB
	rng   *rand.Rand
	mem   *vfs.Mem
	fs    vfs.FS
	now   time.Time
	d     *Dir
	l     *Log
	how   Compaction
	facts []fact // up to end, those below start included
	start batch.Offset
	end   batch.Offset
	epoch batch.Epoch
	seqs  map[int64]int32

	blocked bool // by a transaction
}

const compactRetention = 40_000

func newCompactWorld(t testing.TB, seed int64) *compactWorld {
	w := &compactWorld{t: t, rng: seeded(t, seed), mem: vfs.NewMem(seed), now: time.UnixMilli(1_700_000_000_000), seqs: map[int64]int32{}}
	w.fs = w.mem
	w.how = DefaultCompaction()
	w.how.MinRatio, w.how.DeleteRetentionMs = 0, compactRetention
	w.open()
	return w
}

func (w *compactWorld) options() Options {
	o := testOptions()
	o.SegmentBytes = 1 << 10
	o.IndexIntervalBytes = 100
	o.CheckpointInterval = 2 * time.Second
	o.SnapshotBytes = 700
	o.CleanerBytes = 3200 // 96 keys
	o.Now = func() time.Time { return w.now }
	return o
}

func (w *compactWorld) open() {
	d, err := OpenDir(w.fs, testDir, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.d, w.l = d, d.Log("t", 0)
	if w.l == nil {
		w.l = mustCreate(w.t, d, "t", 0)
	}
	how := w.how
	w.l.SetCompaction(&how)
}

// appendSome appends a batch of random records.
func (w *compactWorld) appendSome() {
	codec := compress.Codec(0)
	if w.rng.Intn(3) == 0 {
		codec = compress.Codec(w.rng.Intn(5))
	}
	ts := w.now.UnixMilli() - w.rng.Int63n(2000)
	b := batch.NewBuilder(ts)
	var put []fact
	for range 1 + w.rng.Intn(5) {
		f := fact{time: ts + w.rng.Int63n(1000), key: fmt.Sprintf("key-%d", w.rng.Intn(12)), put: w.now.UnixMilli()}
		if w.rng.Intn(4) > 0 {
			f.value = fmt.Appendf(nil, "%d-%s", w.rng.Int63(), bytes.Repeat([]byte("x"), w.rng.Intn(60)))
		}
		b.Add(f.time, []byte(f.key), f.value, batch.Header{Key: "h", Value: []byte("v")})
		put = append(put, f)
	}
	if codec != 0 {
		if err := b.Compress(int8(codec), func(dst, src []byte) ([]byte, error) { return compress.Deflate(codec, dst, src, 0) }); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.rng.Intn(2) == 0 {
		id := int64(w.rng.Intn(4))
		b.Producer(id, 0, w.seqs[id])
		w.seqs[id] += int32(len(put))
	}
	if w.rng.Intn(20) == 0 {
		w.epoch++
	}
	a := mustAppend(w.t, w.l, b.Bytes(), w.epoch)
	for i := range put {
		put[i].offset, put[i].epoch = a.First+batch.Offset(i), w.epoch
	}
	w.facts, w.end = append(w.facts, put...), a.Last+1
}

// step does one thing at random.
func (w *compactWorld) step() {
	switch n := w.rng.Intn(40); {
	case n < 20:
		w.appendSome()
	case n < 25:
		w.l.SetHW(w.l.HW() + batch.Offset(w.rng.Int63n(int64(w.end-w.l.HW())+1)))
	case n < 30:
		w.now = w.now.Add(time.Duration(w.rng.Intn(4000)) * time.Millisecond)
		w.tick()
	case n < 35:
		w.clean()
	case n == 35:
		w.cut(w.l.HW() + batch.Offset(w.rng.Int63n(int64(w.end-w.l.HW())+1)))
	case n == 36 && w.rng.Intn(3) == 0:
		w.trim(w.start + batch.Offset(w.rng.Int63n(int64(w.l.HW()-w.start)+1)))
	case n == 37:
		w.reopen()
	case n == 38:
		w.now = w.now.Add(compactRetention * time.Millisecond)
	case n == 39:
		w.how.HoldDeletes = w.rng.Intn(3) == 0
		how := w.how
		w.l.SetCompaction(&how)
	}
}

func (w *compactWorld) tick() {
	if err := w.d.Tick(); err != nil {
		w.t.Fatal(err)
	}
}

// clean cleans until nothing is left to be, and checks that nothing is.
func (w *compactWorld) clean() {
	for range 100 {
		more, err := w.d.Clean()
		if err != nil {
			w.t.Fatal(err)
		}
		if !more {
			w.spotless()
			return
		}
	}
	w.t.Fatal("cleaning does not end")
}

// spotless checks that nothing that is superseded was left below the cleaned end.
func (w *compactWorld) spotless() {
	w.t.Helper()
	if p, _ := w.l.dirtyPart(w.now.UnixMilli()); p.end > w.l.CleanedTo() && w.how.MinRatio == 0 && !w.blocked {
		w.t.Fatalf("cleaned to %d of %d", w.l.CleanedTo(), p.end)
	}
	newest := map[string]batch.Offset{}
	for _, f := range w.facts {
		if f.offset < w.l.CleanedTo() {
			newest[f.key] = f.offset
		}
	}
	for _, f := range w.records() {
		if f.offset < w.l.CleanedTo() && f.offset < newest[f.key] {
			w.t.Fatalf("%s at %d is left, and %d is newer; cleaned to %d", f.key, f.offset, newest[f.key], w.l.CleanedTo())
		}
	}
}

func (w *compactWorld) cut(to batch.Offset) {
	if to < w.l.Start() {
		return
	}
	if err := w.l.TruncateTo(to); err != nil {
		w.t.Fatal(err)
	}
	w.end = w.l.End()
	for n := len(w.facts); n > 0 && w.facts[n-1].offset >= w.end; n-- {
		w.facts = w.facts[:n-1]
	}
	w.seqs = map[int64]int32{}
	for _, p := range w.l.Producers() {
		w.seqs[p.ID] = nextSequence(p.LastSequence)
	}
}

func (w *compactWorld) trim(to batch.Offset) {
	if err := w.l.AdvanceStart(to); err != nil {
		w.t.Fatal(err)
	}
	w.start = w.l.Start()
}

// reopen stops the folder in order, or kills it, and opens it again.
func (w *compactWorld) reopen() {
	before := w.windows()
	if w.rng.Intn(2) == 0 {
		mustClose(w.t, w.d)
		if err := Check(w.mem, testDir); err != nil {
			w.t.Fatal(err)
		}
	} else {
		w.mem = w.mem.ProcessClone()
		w.fs = w.mem
	}
	w.open()
	if after := w.windows(); !reflect.DeepEqual(before, after) {
		w.t.Fatalf("producers before %v and after %v", before, after)
	}
}

// windows are the producers as far as they tell a retry.
func (w *compactWorld) windows() map[int64][]producerBatch {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	out := map[int64][]producerBatch{}
	for id, p := range w.l.producers.byID {
		out[id] = append([]producerBatch(nil), p.batches[:p.n]...)
	}
	return out
}

// records are those of the log, from its start on.
func (w *compactWorld) records() []fact {
	w.t.Helper()
	batches, err := readLog(w.l, 600)
	if err != nil {
		w.t.Fatal(err)
	}
	return recordsOf(w.t, batches, w.l.Start())
}

func recordsOf(t testing.TB, batches []batch.Batch, start batch.Offset) []fact {
	t.Helper()
	var out []fact
	for _, b := range batches {
		payload, err := compress.Inflate(compress.Codec(b.Codec()), nil, b.Payload(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range b.Records(payload) {
			if err != nil {
				t.Fatal(err)
			}
			if r.HeaderCount() != 1 {
				t.Fatalf("record %d has %d headers", r.Offset, r.HeaderCount())
			}
			if r.Offset >= start {
				out = append(out, fact{offset: r.Offset, time: r.Timestamp, epoch: b.Epoch(), key: string(r.Key), value: bytes.Clone(r.Value)})
			}
		}
	}
	return out
}

// check compares the log with all that was appended.
func (w *compactWorld) check() {
	w.t.Helper()
	w.checkAbove(w.l.CleanedTo())
}

// checkAbove is check where from an offset on nothing can be missing.
func (w *compactWorld) checkAbove(cleaned batch.Offset) {
	w.t.Helper()
	if w.l.Start() != w.start || w.l.End() != w.end {
		w.t.Fatalf("log from %d to %d, want %d to %d", w.l.Start(), w.l.End(), w.start, w.end)
	}
	if err := w.l.Damaged(); err != nil {
		w.t.Fatal(err)
	}
	got := w.records()
	if err := survivors(got, w.facts, w.start, cleaned, w.now.UnixMilli()); err != nil {
		w.t.Fatal(err)
	}
	w.checkTimes(got)
	var es epochs
	for _, f := range w.facts {
		es = es.add(f.epoch, f.offset)
	}
	for e := batch.Epoch(0); e <= es.last(); e++ {
		gotE, gotEnd := w.l.EpochEnd(e)
		if wantE, wantEnd := es.cutStart(w.start).end(e, w.start, w.end); w.start < w.end && (gotE != wantE || gotEnd != wantEnd) {
			w.t.Fatalf("end of epoch %d: got %d and %d, want %d and %d", e, gotE, gotEnd, wantE, wantEnd)
		}
	}
}

// survivors judges what is left of what was appended: in order, unchanged, complete from
// cleaned on, and below it without the newest value of no key.
func survivors(got, facts []fact, start, cleaned batch.Offset, now int64) error {
	byOffset := map[batch.Offset]fact{}
	for _, f := range got {
		byOffset[f.offset] = f
	}
	newest := map[string]fact{}
	seen := 0
	for _, f := range facts {
		if f.offset < start {
			continue
		}
		newest[f.key] = f
		g, there := byOffset[f.offset]
		if there {
			seen++
			f.put = 0
			if !reflect.DeepEqual(g, f) {
				return fmt.Errorf("record %+v, want %+v", g, f)
			}
		} else if f.offset >= cleaned {
			return fmt.Errorf("record %d is gone and lies above the cleaned end %d", f.offset, cleaned)
		}
	}
	if seen != len(got) {
		return fmt.Errorf("%d records were never appended", len(got)-seen)
	}
	for key, f := range newest {
		if _, there := byOffset[f.offset]; there {
			continue
		}
		if f.value != nil {
			return fmt.Errorf("the newest value of %s at %d is gone", key, f.offset)
		}
		if now < f.put+compactRetention {
			return fmt.Errorf("the deletion of %s at %d went after %d ms", key, f.offset, now-f.put)
		}
		for _, g := range got {
			if g.key == key {
				return fmt.Errorf("%s at %d has risen: its deletion at %d is gone", key, g.offset, f.offset)
			}
		}
	}
	return nil
}

// checkTimes compares the answers about time with the records that there are.
func (w *compactWorld) checkTimes(got []fact) {
	w.t.Helper()
	ask := w.now.UnixMilli() - w.rng.Int63n(100_000)
	var want fact
	found := false
	most := fact{time: batch.NoTimestamp}
	for _, f := range got {
		if !found && f.time >= ask {
			want, found = f, true
		}
		if f.time > most.time {
			most = f
		}
	}
	o, ts, _, ok, err := w.l.OffsetAt(ask, w.end)
	if err != nil || ok != found || found && (o != want.offset || ts != want.time) {
		w.t.Fatalf("first at or after %d: got %d at %d (%v, %v), want %d at %d (%v)", ask, o, ts, ok, err, want.offset, want.time, found)
	}
	o, ts, _, ok, err = w.l.MaxTimestamp(w.end)
	if err != nil || ok != (len(got) > 0) || ok && (o != most.offset || ts != most.time) {
		w.t.Fatalf("newest: got %d at %d (%v, %v), want %d at %d", o, ts, ok, err, most.offset, most.time)
	}
}
