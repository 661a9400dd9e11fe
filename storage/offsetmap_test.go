package storage

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weirmq/weir/wire/batch"
)

// TestOffsetMap compares the map with Go's.
func TestOffsetMap(t *testing.T) {
	rng := seeded(t, 1)
	m := newOffsetMap(1 << 20)
	want := map[string]batch.Offset{}
	for o := batch.Offset(0); m.room(1); o++ {
		key := fmt.Sprint(rng.Intn(100_000))
		m.put([]byte(key), o)
		want[key] = o
	}
	if m.used != len(want) || m.most != loaded(len(m.slots)) || len(m.slots)*offsetSlotBytes > 1<<20 {
		t.Fatalf("%d keys of %d, at most %d in %d slots", m.used, len(want), m.most, len(m.slots))
	}
	for key, o := range want {
		if m.newer([]byte(key), o) || o > 0 && !m.newer([]byte(key), o-1) {
			t.Fatalf("%s is not at %d", key, o)
		}
	}
	if m.newer([]byte("another"), 0) {
		t.Fatal("a key that was never put is there")
	}
}

// cleanBatches makes batches for a benchmark: each record's key comes again later.
func cleanBatches(n int) [][]byte {
	var out [][]byte
	for i := range n {
		b := batch.NewBuilder(1000)
		for j := range 100 {
			b.Add(1000, fmt.Appendf(nil, "key-%d", (i*100+j)*7919%(n*50)), bytes.Repeat([]byte("v"), 100))
		}
		p := b.Bytes()
		p.Assign(batch.Offset(i*100), 1)
		out = append(out, p)
	}
	return out
}

// thinAll thins batches once and returns the bytes that went in.
func thinAll(tb testing.TB, keys *offsetMap, batches [][]byte) (in int64) {
	t := newThinner(keys, 1<<40)
	t.out = make([]byte, 0, 2*cleanWindow)
	for _, b := range batches {
		if err := t.add(b); err != nil {
			tb.Fatal(err)
		}
		if in += int64(len(b)); len(t.out) >= cleanWindow {
			t.out = t.out[:0]
		}
	}
	return in
}

func indexAll(tb testing.TB, batches [][]byte) *offsetMap {
	keys := newOffsetMap(16 << 20)
	put := func(o batch.Offset, key []byte, _ bool) bool {
		keys.put(key, o)
		return false
	}
	for _, b := range batches {
		if _, _, err := batch.Batch(b).Thin(nil, batch.Batch(b).Payload(), put); err != nil {
			tb.Fatal(err)
		}
	}
	return keys
}

// TestCleaningAllocates finds that a record costs no allocation, on either pass.
func TestCleaningAllocates(t *testing.T) {
	batches := cleanBatches(200)
	var keys *offsetMap
	index := testing.AllocsPerRun(3, func() { keys = indexAll(t, batches) })
	thin := testing.AllocsPerRun(3, func() { thinAll(t, keys, batches) })
	if index > 40 || thin > 40 {
		t.Fatalf("%.0f allocations to index 20000 records, %.0f to thin them", index, thin)
	}
}

func BenchmarkCleanIndex(b *testing.B) {
	batches := cleanBatches(1000)
	b.ReportAllocs()
	b.SetBytes(int64(1000 * len(batches[0])))
	for b.Loop() {
		indexAll(b, batches)
	}
}

func BenchmarkCleanThin(b *testing.B) {
	batches := cleanBatches(1000)
	keys := indexAll(b, batches)
	b.ReportAllocs()
	b.SetBytes(int64(1000 * len(batches[0])))
	for b.Loop() {
		thinAll(b, keys, batches)
	}
}
