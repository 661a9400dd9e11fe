package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
	"github.com/weirmq/weir/wire/compress"
)

const goldenDir = "testdata/v1"

// goldenOptions make several small segments.
func goldenOptions() Options {
	o := testOptions()
	o.SegmentBytes, o.IndexIntervalBytes = 3000, 512
	return o
}

// writeGolden makes the folder that every later version must open. It is run
// once for a version of the formats; a change of them gets a folder of its own.
func writeGolden(t *testing.T) {
	d, err := OpenDir(vfs.OS(), goldenDir, goldenOptions())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create("empty", 7, ID{7}); err != nil {
		t.Fatal(err)
	}
	l, err := d.Create("orders", 0, ID{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xfe})
	if err != nil {
		t.Fatal(err)
	}
	seq := int32(0)
	for i := range 40 {
		mustAppend(t, l, goldenBatch(t, i), batch.Epoch(i/15))
		mustAppend(t, l, producerBatchOf(11, 1, seq, 2), batch.Epoch(i/15))
		seq += 2
		if i == 20 {
			if err := l.TruncateTo(l.End() - 2); err != nil {
				t.Fatal(err)
			}
			seq -= 2
		}
	}
	l.SetHW(60)
	if err := l.AdvanceStart(30); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(&CleanStop{BrokerEpoch: 4711}); err != nil {
		t.Fatal(err)
	}
}

func goldenBatch(t *testing.T, i int) batch.Batch {
	b := batch.NewBuilder(int64(1_700_000_000_000 + 1000*i))
	for n := range 1 + i%3 {
		b.Add(int64(1_700_000_000_000+1000*i-500*n), fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte{byte('a' + n)}, 100), batch.Header{Key: "h", Value: []byte{byte(i)}})
	}
	if i%2 == 0 {
		err := b.Compress(batch.Gzip, func(dst, src []byte) ([]byte, error) { return compress.Deflate(compress.Gzip, dst, src, 6) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// goldenSum is the hash of all batches of the golden log from its start on.
const goldenSum = "9c272139994f2b6fc87a00153973ad75afebcb8f983375b115d67d7d526ee4e6"

// TestGolden opens a folder that version 1 of the formats wrote.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(goldenDir); errors.Is(err, fs.ErrNotExist) && flag.Lookup("rewrite").Value.String() == "true" {
		writeGolden(t)
	}
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(goldenDir)); err != nil {
		t.Fatal(err)
	}
	if err := Check(vfs.OS(), dir); err != nil {
		t.Fatalf("check: %v", err)
	}
	d, err := OpenDir(vfs.OS(), dir, goldenOptions())
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := d.PreviousStop(); !ok || s.BrokerEpoch != 4711 {
		t.Fatalf("clean stop %v, %v", s, ok)
	}
	l, empty := d.Log("orders", 0), d.Log("empty", 7)
	if l == nil || empty == nil || len(d.Logs()) != 2 || l.ID().String() != "_wECAwQFBgcICQoLDA0O_g" {
		t.Fatalf("logs %v", d.Logs())
	}
	if l.Start() != 30 || l.End() != 157 || l.HW() != 60 || l.LastEpoch() != 2 || l.Flushed() != 157 {
		t.Fatalf("log %d..%d, HW %d, epoch %d, flushed %d", l.Start(), l.End(), l.HW(), l.LastEpoch(), l.Flushed())
	}
	if e, end := l.EpochEnd(0); e != 0 || end != 60 {
		t.Fatalf("epoch %d ends at %d", e, end)
	}
	batches, err := readLog(l, 1000)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, b := range batches {
		h.Write(b)
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != goldenSum {
		t.Fatalf("the batches hash to %s, want %s", got, goldenSum)
	}
	if o, ts, e, ok, err := l.OffsetAt(1_700_000_020_000, l.End()); err != nil || !ok || o != 79 || ts != 1_700_000_020_000 || e != 1 {
		t.Fatalf("offset at: %d, %d, %d, %v, %v", o, ts, e, ok, err)
	}
	last := batches[len(batches)-1]
	for _, b := range batches[len(batches)-9:] {
		if !b.HasProducer() {
			continue
		}
		a, err := l.AppendLeader(bytes.Clone(b), 2)
		if err != nil || !a.Duplicate || a.First != b.Base() {
			t.Fatalf("batch at %d sent again: %+v, %v", b.Base(), a, err)
		}
	}
	if a := mustAppend(t, l, producerBatchOf(11, 1, last.LastSequence()+1, 1), 3); a.First != 157 {
		t.Fatalf("appended at %d", a.First)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}
