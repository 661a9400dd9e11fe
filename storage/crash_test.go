package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// history is what a log may hold: batches one after the other.
type history struct {
	start   batch.Offset
	batches []batch.Batch
}

func (h history) end() batch.Offset {
	if n := len(h.batches); n > 0 {
		return h.batches[n-1].End()
	}
	return h.start
}

// cut returns the history below the batch that holds end.
func (h history) cut(end batch.Offset) history {
	out := history{start: h.start}
	for _, b := range h.batches {
		if b.End() > end {
			break
		}
		out.batches = append(out.batches, b)
	}
	return out
}

// logModel is what a log must look like after a crash at this moment.
type logModel struct {
	legal    []history // the crash may leave a prefix of any of these
	durable  batch.Offset
	mayBe    bool // the log may exist
	mustBe   bool
	gone     bool // all of it may be gone
	epoch    batch.Epoch
	sequence map[int64]int32
}

func (m *logModel) now() history { return m.legal[len(m.legal)-1] }

// world runs one script of operations and crashes the disk before every single
// call that changes it.
type world struct {
	t      *testing.T
	seed   int64
	rng    *rand.Rand
	mem    *vfs.Mem
	now    time.Time
	d      *Dir
	models map[string]*logModel
	points int
	armed  bool
	doing  string
	inject func(op vfs.Op, name string) error // instead of crashing, if set
}

// stopped is what must panics with where a fault was injected.
type stopped struct{ err error }

func (w *world) options() Options {
	o := testOptions()
	o.SegmentBytes = 1 << 10
	o.IndexIntervalBytes = 128
	o.SnapshotBytes = 600
	o.CheckpointInterval = 3 * time.Second
	o.Now = func() time.Time { return w.now }
	return o
}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{t: t, seed: seed, rng: seeded(t, seed), mem: vfs.NewMem(seed), now: time.UnixMilli(1e12), models: map[string]*logModel{}}
	d, err := OpenDir(vfs.NewFaulty(w.mem, w.hook), testDir, w.options())
	if err != nil {
		t.Fatal(err)
	}
	w.d, w.armed = d, true
	return w
}

// hook crashes the disk before a call that changes it, in several ways.
func (w *world) hook(op vfs.Op, name string) error {
	if !w.armed || !op.Mutates() {
		return nil
	}
	w.points++
	if w.inject != nil {
		return w.inject(op, name)
	}
	at := fmt.Sprintf("%s, before %s %s (crash %d)", w.doing, op, name, w.points)
	w.inspect(at+", killed", w.mem.ProcessClone(), true)
	for _, seed := range []int64{0, w.rng.Int63(), w.rng.Int63()} {
		w.inspect(fmt.Sprintf("%s, seed %d", at, seed), w.mem.CrashClone(seed), false)
	}
	return nil
}

// inspect opens what a crash left and compares it with the models. After a mere
// kill nothing that was acknowledged may be missing.
func (w *world) inspect(at string, m *vfs.Mem, killed bool) {
	w.t.Helper()
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("seed %d: %s: %s", w.seed, at, fmt.Sprintf(format, args...))
	}
	d, err := OpenDir(m, testDir, w.options())
	if err != nil {
		fail("open: %v", err)
	}
	for topic, model := range w.models {
		l := d.Log(topic, 0)
		if l == nil {
			if model.mustBe {
				fail("%s is gone", topic)
			}
			continue
		}
		if !model.mayBe {
			fail("%s is back", topic)
		}
		if err := inspectLog(l, model, killed); err != nil {
			fail("%s: %v", topic, err)
		}
	}
	if err := d.Close(&CleanStop{1}); err != nil {
		fail("close: %v", err)
	}
	if err := Check(m, testDir); err != nil {
		fail("check: %v", err)
	}
}

func inspectLog(l *Log, model *logModel, killed bool) error {
	if err := l.Damaged(); err != nil {
		return fmt.Errorf("damaged: %w", err)
	}
	got, err := readLog(l, 700)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range model.legal {
		err := fits(l, got, h, model.durable, model.now().end(), killed && !model.gone)
		if err == nil {
			return afterCrash(l, h)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fits tells whether a log holds a history up to some batch at or past durable,
// and after a kill at or past kept.
func fits(l *Log, got []batch.Batch, h history, durable, kept batch.Offset, killed bool) error {
	if l.Start() != h.start {
		return fmt.Errorf("start %d, want %d", l.Start(), h.start)
	}
	want := h.batches
	for len(want) > 0 && want[0].End() <= h.start {
		want = want[1:]
	}
	for i, b := range got {
		if i >= len(want) {
			return fmt.Errorf("batch %d at %d was never appended", i, b.Base())
		}
		if !bytes.Equal(b, want[i]) {
			return fmt.Errorf("batch at %d of epoch %d is not the one of %d and epoch %d", b.Base(), b.Epoch(), want[i].Base(), want[i].Epoch())
		}
	}
	if need := min(durable, h.end()); l.End() < need {
		return fmt.Errorf("end %d, flushed to %d", l.End(), need)
	}
	if need := min(kept, h.end()); killed && l.End() < need {
		return fmt.Errorf("end %d after a kill, %d appended", l.End(), need)
	}
	return nil
}

// afterCrash checks what is derived from the batches: epochs and the window of
// the producers.
func afterCrash(l *Log, h history) error {
	have := h.cut(l.End())
	var es epochs
	last := map[int64][]batch.Batch{}
	for _, b := range have.batches {
		es = es.add(b.Epoch(), b.Base())
		if b.HasProducer() {
			id := b.ProducerID()
			if n := len(last[id]); n > 0 && last[id][n-1].ProducerEpoch() != b.ProducerEpoch() {
				last[id] = nil
			}
			last[id] = append(last[id], b)
		}
	}
	for e := batch.Epoch(0); e <= es.last()+1; e++ {
		gotE, gotEnd := l.EpochEnd(e)
		wantE, wantEnd := es.cutStart(l.Start()).end(e, l.Start(), l.End())
		if l.Start() < l.End() && (gotE != wantE || gotEnd != wantEnd) {
			return fmt.Errorf("end of epoch %d: got %d and %d, want %d and %d", e, gotE, gotEnd, wantE, wantEnd)
		}
	}
	for id, batches := range last {
		for _, b := range batches[max(0, len(batches)-windowSize):] {
			if b.Base() < l.Start() {
				continue // its producer may have been forgotten with its batches
			}
			a, err := l.AppendLeader(bytes.Clone(b), l.LastEpoch())
			if err != nil || !a.Duplicate || a.First != b.Base() || a.Last != b.Last() {
				return fmt.Errorf("producer %d: batch at %d sent again gives %+v, %w", id, b.Base(), a, err)
			}
		}
	}
	end := l.End()
	a, err := l.AppendLeader(makeBatch(2, 5, 20), l.LastEpoch()+1)
	if err != nil || a.First != end {
		return fmt.Errorf("append after the crash: %+v, %w", a, err)
	}
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil && w.inject != nil {
		panic(stopped{err})
	}
	if err != nil {
		w.t.Fatalf("seed %d: %s: %v", w.seed, w.doing, err)
	}
}

func (w *world) create(topic string) {
	w.doing = "create " + topic
	w.models[topic] = &logModel{legal: []history{{}}, mayBe: true, sequence: map[int64]int32{}}
	_, err := w.d.Create(topic, 0, ID{9, byte(w.rng.Int())})
	w.must(err)
	w.models[topic].mustBe = true
}

func (w *world) delete(topic string) {
	w.doing = "delete " + topic
	w.models[topic].mustBe = false
	w.must(w.d.Delete(w.d.Log(topic, 0)))
	w.models[topic].mayBe = false
	w.must(w.d.Tick())
}

func (w *world) nextBatch(m *logModel) batch.Batch {
	if w.rng.Intn(2) == 0 {
		return makeBatch(1+w.rng.Intn(3), 1000+w.rng.Int63n(500), w.rng.Intn(200))
	}
	id := int64(1 + w.rng.Intn(2))
	n := 1 + w.rng.Intn(3)
	b := producerBatchOf(id, 0, m.sequence[id], n)
	m.sequence[id] += int32(n)
	return b
}

func (w *world) append(topic string) {
	m, l := w.models[topic], w.d.Log(topic, 0)
	w.doing = fmt.Sprintf("append to %s at %d", topic, l.End())
	if w.rng.Intn(6) == 0 {
		m.epoch++
	}
	b := w.nextBatch(m)
	image := bytes.Clone(b)
	batch.Batch(image).Assign(l.End(), m.epoch)
	before := m.now()
	after := history{before.start, append(before.batches[:len(before.batches):len(before.batches)], image)}
	m.legal = []history{before, after}
	if w.rng.Intn(3) > 0 {
		_, err := l.AppendLeader(b, m.epoch)
		w.must(err)
	} else {
		w.must(l.AppendReplica(batch.Run(image), m.epoch))
	}
	m.legal = []history{after}
}

func (w *world) flush(topic string) {
	w.doing = "flush " + topic
	l := w.d.Log(topic, 0)
	w.must(l.Flush())
	if l.Flushed() != l.End() {
		w.t.Fatalf("seed %d: flushed %d of %d", w.seed, l.Flushed(), l.End())
	}
	w.models[topic].durable = l.End()
}

func (w *world) tick() {
	w.doing = "tick"
	w.now = w.now.Add(time.Duration(w.rng.Intn(3000)) * time.Millisecond)
	w.must(w.d.Tick())
	for topic, m := range w.models {
		if l := w.d.Log(topic, 0); l != nil {
			l.SetHW(l.End())
			m.durable = l.Flushed()
		}
	}
}

// resequence sets the producers' next sequences after a cut.
func (m *logModel) resequence() {
	m.sequence = map[int64]int32{}
	for _, b := range m.now().batches {
		if b.HasProducer() {
			m.sequence[b.ProducerID()] = nextSequence(b.LastSequence())
		}
	}
}

func (w *world) truncate(topic string) {
	m, l := w.models[topic], w.d.Log(topic, 0)
	end := l.Start() + batch.Offset(w.rng.Int63n(int64(l.End()-l.Start())+1))
	w.doing = fmt.Sprintf("truncate %s from %d to %d", topic, l.End(), end)
	before := m.now()
	after := before.cut(end)
	if after.end() < l.Start() {
		after = history{start: l.Start()}
	}
	m.legal = []history{before, after}
	m.durable = min(m.durable, after.end())
	w.must(l.TruncateTo(end))
	if l.End() != max(after.end(), l.Start()) {
		w.t.Fatalf("seed %d: %s: end %d, want %d", w.seed, w.doing, l.End(), after.end())
	}
	m.legal = []history{after}
	m.epoch++
	m.resequence()
}

func (w *world) reset(topic string) {
	m, l := w.models[topic], w.d.Log(topic, 0)
	start := batch.Offset(w.rng.Int63n(int64(l.End()) + 50))
	w.doing = fmt.Sprintf("reset %s from %d..%d to %d", topic, l.Start(), l.End(), start)
	before, after := m.now(), history{start: start}
	moved := before
	moved.start = start // the start can be durable before the files are gone
	m.legal = []history{before, {start: before.start}, moved, after}
	m.durable = 0
	m.gone = true
	w.must(l.ResetTo(start))
	m.legal, m.durable, m.gone = []history{after}, start, false
	m.epoch++
	m.resequence()
}

func (w *world) advance(topic string) {
	m, l := w.models[topic], w.d.Log(topic, 0)
	start := l.Start() + batch.Offset(w.rng.Int63n(int64(l.End()-l.Start())+1))
	w.doing = fmt.Sprintf("advance the start of %s from %d to %d", topic, l.Start(), start)
	before := m.now()
	after := history{start: start, batches: before.batches}
	m.legal = []history{before, after}
	w.must(l.AdvanceStart(start))
	m.legal = []history{after}
}

func (w *world) step() {
	switch n := w.rng.Intn(40); {
	case n < 22:
		w.append("a")
	case n < 25:
		w.append("b")
	case n < 28:
		w.flush("a")
	case n < 34:
		w.tick()
	case n < 37:
		w.truncate("a")
	case n < 38:
		w.reset("a")
	case n < 39:
		w.advance("a")
	default:
		w.delete("b")
		w.create("b")
	}
}

// crashSeeds found something once: each is a regression test of its own.
var crashSeeds = []int64{100, 101, 102, 104, 114, 133}

// H31, H33: TestCrashEverywhere crashes the disk before every call that changes it, in a
// random script of all operations, and expects a legal log each time.
func TestCrashEverywhere(t *testing.T) {
	seeds.Alone(t)
	const steps = 60
	points := 0
	for _, seed := range append(crashSeeds, seeds.For(t)) {
		w := newWorld(t, seed)
		w.create("a")
		w.create("b")
		for range steps {
			w.step()
		}
		w.armed = false
		if err := w.d.Close(nil); err != nil {
			t.Fatal(err)
		}
		points += w.points
	}
	t.Logf("%d crash points, 4 crashes each", points)
}
