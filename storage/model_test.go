package storage

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// mapModel is a log as a map: the record at each offset, and what it needs to
// answer the same questions.
type mapModel struct {
	start, end batch.Offset
	records    map[batch.Offset]modelRecord
	batches    map[batch.Offset]batch.Offset // base to end
	epoch      batch.Epoch
}

type modelRecord struct {
	base  batch.Offset
	time  int64
	epoch batch.Epoch
	value []byte
}

// logMachine checks a Log against the map. Its actions are rapid's.
type logMachine struct {
	fs *vfs.Mem
	d  *Dir
	l  *Log
	m  mapModel
}

func (s *logMachine) open(t *rapid.T) {
	o := testOptions()
	o.SegmentBytes = 2 << 10
	d, err := OpenDir(s.fs, testDir, o)
	if err != nil {
		t.Fatal(err)
	}
	s.d, s.l = d, d.Log("t", 3)
	if s.l == nil {
		if s.l, err = d.Create("t", 3, ID{5}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *logMachine) note(b batch.Batch) {
	for r, err := range b.Records(b.Payload()) {
		if err != nil {
			panic(err)
		}
		s.m.records[r.Offset] = modelRecord{b.Base(), r.Timestamp, b.Epoch(), bytes.Clone(r.Value)}
	}
	s.m.batches[b.Base()] = b.End()
	s.m.end = b.End()
}

func (s *logMachine) batch(t *rapid.T) batch.Batch {
	b := batch.NewBuilder(1000)
	for range rapid.IntRange(1, 5).Draw(t, "records") {
		b.Add(rapid.Int64Range(1000, 1100).Draw(t, "time"), nil, rapid.SliceOfN(rapid.Byte(), 0, 120).Draw(t, "value"))
	}
	return b.Bytes()
}

func (s *logMachine) AppendLeader(t *rapid.T) {
	s.m.epoch += batch.Epoch(rapid.IntRange(0, 1).Draw(t, "epoch"))
	b := s.batch(t)
	a, err := s.l.AppendLeader(b, s.m.epoch)
	if err != nil || a.First != s.m.end || a.Last != b.Last() || a.Duplicate {
		t.Fatalf("appended %+v, %v at %d", a, err, s.m.end)
	}
	s.note(b)
}

func (s *logMachine) AppendReplica(t *rapid.T) {
	var run batch.Run
	var batches []batch.Batch
	at, e := s.m.end, s.m.epoch
	for range rapid.IntRange(1, 12).Draw(t, "batches") {
		b := s.batch(t)
		e += batch.Epoch(rapid.IntRange(0, 1).Draw(t, "epoch"))
		b.Assign(at, e)
		at = b.End()
		run, batches = append(run, b...), append(batches, b)
	}
	if err := s.l.AppendReplica(run, e); err != nil {
		t.Fatal(err)
	}
	s.m.epoch = e
	for _, b := range batches {
		s.note(b)
	}
}

func (s *logMachine) Refusals(t *rapid.T) {
	b := s.batch(t)
	b.Assign(s.m.end+1, s.m.epoch)
	if err := s.l.AppendReplica(batch.Run(b), s.m.epoch); !errors.Is(err, ErrGap) {
		t.Fatalf("gap: %v", err)
	}
	b.Assign(s.m.end, s.m.epoch+1)
	if err := s.l.AppendReplica(batch.Run(b), s.m.epoch); !errors.Is(err, ErrEpoch) {
		t.Fatalf("epoch: %v", err)
	}
	if _, err := s.l.AppendLeader(b, s.l.LastEpoch()-1); s.l.LastEpoch() >= 0 && !errors.Is(err, ErrEpoch) {
		t.Fatalf("old leader: %v", err)
	}
	b.Assign(s.m.end, s.m.epoch)
	b[len(b)-1] ^= 1
	var corrupt *batch.CorruptError
	if err := s.l.AppendReplica(batch.Run(b), s.m.epoch); !errors.As(err, &corrupt) {
		t.Fatalf("bad CRC: %v", err)
	}
	for _, o := range []batch.Offset{s.m.start - 1, s.m.end + 1} {
		if _, err := s.l.Read(o, s.m.end, 100); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("read at %d: %v", o, err)
		}
	}
}

func (s *logMachine) Read(t *rapid.T) {
	from := batch.Offset(rapid.Int64Range(int64(s.m.start), int64(s.m.end)).Draw(t, "from"))
	end := batch.Offset(rapid.Int64Range(int64(s.m.start), int64(s.m.end)).Draw(t, "end"))
	most := rapid.IntRange(0, 3000).Draw(t, "most")
	r, err := s.l.Read(from, end, most)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	want := s.m.end
	if from < s.m.end {
		want = s.m.batches[s.m.records[from].base]
	}
	if from >= end || want > end {
		if r.Len() != 0 {
			t.Fatalf("read %d..%d of %d gave %d bytes to %d", from, end, s.m.end, r.Len(), r.End())
		}
		return
	}
	if r.Len() == 0 || r.First() != s.m.records[from].base || r.End() > end {
		t.Fatalf("read %d..%d gave %d bytes, %d to %d", from, end, r.Len(), r.First(), r.End())
	}
	if r.Len() > most && r.Len() != r.FirstBatchLen() {
		t.Fatalf("read at most %d bytes gave %d", most, r.Len())
	}
	p := make([]byte, r.Len())
	if _, err := r.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	at := r.First()
	for b, err := range batch.Run(p).Batches() {
		if err != nil || b.Base() != at {
			t.Fatalf("batch at %d, want %d: %v", b.Base(), at, err)
		}
		for rec, err := range b.Records(b.Payload()) {
			want := s.m.records[rec.Offset]
			if err != nil || !bytes.Equal(rec.Value, want.value) || rec.Timestamp != want.time || b.Epoch() != want.epoch {
				t.Fatalf("record at %d: %v", rec.Offset, err)
			}
		}
		at = b.End()
	}
	if at != r.End() {
		t.Fatalf("range ends at %d, its batches at %d", r.End(), at)
	}
}

func (s *logMachine) Times(t *rapid.T) {
	ts := rapid.Int64Range(990, 1110).Draw(t, "time")
	end := batch.Offset(rapid.Int64Range(int64(s.m.start), int64(s.m.end)).Draw(t, "end"))
	wantAt, wantMax := batch.Offset(-1), batch.Offset(-1)
	for o := s.m.start; o < end; o++ {
		r := s.m.records[o]
		if wantAt < 0 && r.time >= ts {
			wantAt = o
		}
		if wantMax < 0 || r.time > s.m.records[wantMax].time {
			wantMax = o
		}
	}
	for name, c := range map[string]struct {
		want batch.Offset
		get  func() (batch.Offset, int64, batch.Epoch, bool, error)
	}{
		"at":  {wantAt, func() (batch.Offset, int64, batch.Epoch, bool, error) { return s.l.OffsetAt(ts, end) }},
		"max": {wantMax, func() (batch.Offset, int64, batch.Epoch, bool, error) { return s.l.MaxTimestamp(end) }},
	} {
		o, got, e, found, err := c.get()
		if err != nil || found != (c.want >= 0) {
			t.Fatalf("%s %d below %d: found %v, want %d, %v", name, ts, end, found, c.want, err)
		}
		if r := s.m.records[c.want]; found && (o != c.want || got != r.time || e != r.epoch) {
			t.Fatalf("%s %d below %d: got %d at %d of %d, want %d at %d of %d", name, ts, end, o, got, e, c.want, r.time, r.epoch)
		}
	}
}

func (s *logMachine) cut(end batch.Offset) {
	for o := end; o < s.m.end; o++ {
		delete(s.m.records, o)
		delete(s.m.batches, o)
	}
	s.m.end = end
}

func (s *logMachine) Truncate(t *rapid.T) {
	end := batch.Offset(rapid.Int64Range(int64(s.m.start), int64(s.m.end)).Draw(t, "end"))
	if err := s.l.TruncateTo(end); err != nil {
		t.Fatal(err)
	}
	if end < s.m.end {
		end = max(s.m.records[end].base, s.m.start)
	}
	s.cut(end)
	if s.l.End() != end {
		t.Fatalf("end %d, want %d", s.l.End(), end)
	}
}

func (s *logMachine) Reset(t *rapid.T) {
	start := batch.Offset(rapid.Int64Range(0, int64(s.m.end)+9).Draw(t, "start"))
	if err := s.l.ResetTo(start); err != nil {
		t.Fatal(err)
	}
	s.m = mapModel{start: start, end: start, records: map[batch.Offset]modelRecord{}, batches: map[batch.Offset]batch.Offset{}, epoch: s.m.epoch}
}

func (s *logMachine) Advance(t *rapid.T) {
	start := batch.Offset(rapid.Int64Range(int64(s.m.start), int64(s.m.end)).Draw(t, "start"))
	if err := s.l.AdvanceStart(start); err != nil {
		t.Fatal(err)
	}
	s.m.start = start
}

func (s *logMachine) Flush(t *rapid.T) {
	if err := s.l.Flush(); err != nil || s.l.Flushed() != s.l.End() {
		t.Fatalf("flushed %d of %d: %v", s.l.Flushed(), s.l.End(), err)
	}
}

func (s *logMachine) Restart(t *rapid.T) {
	if rapid.Bool().Draw(t, "kill") {
		s.fs = s.fs.ProcessClone()
	} else if err := s.d.Close(&CleanStop{1}); err != nil {
		t.Fatal(err)
	} else if err := Check(s.fs, testDir); err != nil {
		t.Fatal(err)
	}
	s.open(t)
}

// Check is what holds after every action.
func (s *logMachine) Check(t *rapid.T) {
	if s.l.Start() != s.m.start || s.l.End() != s.m.end {
		t.Fatalf("log %d..%d, model %d..%d", s.l.Start(), s.l.End(), s.m.start, s.m.end)
	}
	if f := s.l.Flushed(); f > s.m.end {
		t.Fatalf("flushed %d of %d", f, s.m.end)
	}
	if err := s.l.Damaged(); err != nil {
		t.Fatal(err)
	}
	if s.m.end > s.m.start {
		last := s.m.records[s.m.end-1].epoch
		if s.l.LastEpoch() != last {
			t.Fatalf("last epoch %d, want %d", s.l.LastEpoch(), last)
		}
		e, end := s.l.EpochEnd(last)
		if e != last || end != s.m.end {
			t.Fatalf("epoch %d ends %d", e, end)
		}
		first := s.m.records[s.m.start].epoch
		want := s.m.end
		for o := s.m.start; o < s.m.end; o++ {
			if s.m.records[o].epoch > first {
				want = o
				break
			}
		}
		if e, end := s.l.EpochEnd(first); e != first || end != want {
			t.Fatalf("epoch %d ends at %d, want %d to end at %d", e, end, first, want)
		}
	}
}

// TestModel compares the log with a map under random operations; rapid prints
// the seed and the shortest failing sequence.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &logMachine{fs: vfs.NewMem(1), m: mapModel{records: map[batch.Offset]modelRecord{}, batches: map[batch.Offset]batch.Offset{}}}
		s.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append leader": s.AppendLeader, "append leader too": s.AppendLeader, "append replica": s.AppendReplica,
			"refusals": s.Refusals, "read": s.Read, "read too": s.Read, "times": s.Times, "truncate": s.Truncate,
			"reset": s.Reset, "advance": s.Advance, "flush": s.Flush, "restart": s.Restart,
			"tick": func(t *rapid.T) {
				if err := s.d.Tick(); err != nil {
					t.Fatal(err)
				}
			},
			"": s.Check,
		})
		if err := s.d.Close(nil); err != nil {
			t.Fatal(err)
		}
	})
}
