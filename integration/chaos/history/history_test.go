package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
)

func sample() []Op {
	return []Op{
		{Process: 1, Func: Send, Outcome: OK, Invoke: 5, Complete: 900, Sends: []Record{{Key: 3, Offset: 17, Value: NewValue(1, 1)}}},
		{Process: 1, Func: Send, Outcome: Info, Invoke: 6, Complete: 6, Sends: []Record{{Key: 3, Offset: NoOffset, Value: NewValue(1, 2)}}},
		{Process: 2, Func: Assign, Outcome: OK, Keys: []Key{3, 4, 1 << 31}},
		{Process: 2, Func: Poll, Outcome: OK, Invoke: 1, Complete: 2, Rebalanced: []Key{4}, Polls: []Record{
			{Key: 3, Offset: 17, Value: NewValue(1, 1)}, {Key: 3, Offset: 18, Value: NewValue(1<<24-1, 1<<40-1)},
			{Key: 4, Offset: 0, Value: NewValue(0, 0)}, {Key: 3, Offset: 1 << 62, Value: NewValue(1, 5)}}},
		{Process: 2, Func: Subscribe, Outcome: OK, Group: 7},
		{Process: 2, Func: Commit, Outcome: OK, Group: 7, Generation: 12, Positions: []Position{{Key: 3, Offset: 18}, {Key: 4, Offset: NoOffset}}},
		{Process: 2, Func: Crash, Outcome: OK, Invoke: -3, Complete: 4},
	}
}

// normal gives empty lists one form.
func normal(op Op) string { return fmt.Sprintf("%+v", op) }

func encode(t *testing.T, ops []Op) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, Header{Seed: 1<<64 - 1, StartUnix: 1234567, Command: "scripts/chaos -seed 5"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		if err := w.Append(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// decode reads all operations and the error that ended them.
func decode(b []byte) (ops []string, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for {
		e, err := r.Next()
		if err != nil {
			return ops, err
		}
		if e.Op != nil {
			ops = append(ops, normal(*e.Op))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	got, err := decode(encode(t, want))
	if !errors.Is(err, io.EOF) {
		t.Fatalf("ended with %v", err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d operations, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != normal(want[i]) {
			t.Errorf("operation %d\n got %s\nwant %s", i, got[i], normal(want[i]))
		}
	}
}

func TestOtherEntries(t *testing.T) {
	var buf bytes.Buffer
	h := Header{Seed: 9, StartUnix: -1, Command: "x"}
	w, err := NewWriter(&buf, h)
	if err != nil {
		t.Fatal(err)
	}
	f := Window{Start: 3, End: 99, Kind: "kill", Target: "leader, node 2", Survivable: true}
	n := Name{Key: 8, Name: "orders-3"}
	if err := errors.Join(w.Window(f), w.Name(n), w.Flush()); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if r.Header() != h {
		t.Errorf("header %+v, want %+v", r.Header(), h)
	}
	if e, err := r.Next(); err != nil || e.Window == nil || *e.Window != f {
		t.Errorf("got %+v, %v, want window %+v", e, err, f)
	}
	if e, err := r.Next(); err != nil || e.Name == nil || *e.Name != n {
		t.Errorf("got %+v, %v, want name %+v", e, err, n)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

// TestTruncated cuts a history at each byte: what is read is a prefix of it, and
// the end is told from a cut.
func TestTruncated(t *testing.T) {
	b := encode(t, sample())
	whole, _ := decode(b)
	ends := 0
	for cut := range b {
		got, err := decode(b[:cut])
		if !reflect.DeepEqual(got, whole[:len(got)]) && len(got) > 0 {
			t.Fatalf("cut at %d: operations that were not written", cut)
		}
		if errors.Is(err, io.EOF) && len(got) > 0 {
			ends++
		} else if err == nil {
			t.Fatalf("cut at %d: no error", cut)
		}
	}
	if ends != len(whole)-1 {
		t.Errorf("%d cuts look like an end, want %d: those between frames", ends, len(whole)-1)
	}
}

// TestDamaged changes bytes: a reader must neither panic nor allocate without bound.
func TestDamaged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := encode(t, sample())
	for range 20000 {
		c := bytes.Clone(b)
		for range 1 + rnd.IntN(3) {
			c[len(magic)+1+rnd.IntN(len(c)-len(magic)-1)] = byte(rnd.Uint32())
		}
		decode(c)
	}
}

// TestConcurrent appends from many goroutines.
func TestConcurrent(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, Header{})
	if err != nil {
		t.Fatal(err)
	}
	const clients, each = 8, 2000
	var wg sync.WaitGroup
	for p := range Process(clients) {
		wg.Go(func() {
			for i := range uint64(each) {
				op := Op{Process: p, Func: Send, Outcome: OK, Sends: []Record{{Offset: int64(i), Value: NewValue(p, i)}}}
				if err := w.Append(&op); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var next [clients]uint64
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		v := e.Op.Sends[0].Value
		if p := v.Process(); p != e.Op.Process || v.Counter() != next[p] {
			t.Fatalf("process %d: value %v, want counter %d", e.Op.Process, v, next[p])
		}
		next[e.Op.Process]++
	}
	for p, n := range next {
		if n != each {
			t.Errorf("process %d: %d operations, want %d", p, n, each)
		}
	}
}

type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.left)
	d.left -= n
	if n < len(b) {
		return n, errors.New("no space")
	}
	return n, nil
}

// TestWriteError checks that a history ends at the first error.
func TestWriteError(t *testing.T) {
	d := &fullDisk{left: 30}
	w, err := NewWriter(d, Header{Command: "a command of more than thirty bytes"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err == nil {
		t.Fatal("no error from a full disk")
	}
	d.left = 1 << 20
	if err := w.Append(&sample()[0]); err == nil {
		t.Error("appended after an error")
	}
	if err := w.Flush(); err == nil || d.left != 1<<20 {
		t.Errorf("written after an error: %v", err)
	}
}

func TestWindowString(t *testing.T) {
	for _, c := range []struct{ kind, target, want string }{
		{"kill", "leader (node 2)", "kill leader (node 2)"},
		{"kill", "kill leader (node 2)", "kill leader (node 2)"},
		{"cut-out+kill", "cut-out leader + kill all (node 1, 2)", "cut-out leader + kill all (node 1, 2)"},
		{"roll", "", "roll"},
	} {
		if got := (Window{Kind: c.kind, Target: c.target}).String(); got != c.want {
			t.Errorf("%s, %s: got %q, want %q", c.kind, c.target, got, c.want)
		}
	}
}
