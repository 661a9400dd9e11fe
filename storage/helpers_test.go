package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

const testDir = "/data"

// testOptions are options without goroutines, with small segments.
func testOptions() Options {
	o := DefaultOptions()
	o.FlushInterval = 0
	o.SegmentBytes = 4 << 10
	o.IndexIntervalBytes = 256
	o.SnapshotBytes = 2 << 10
	o.MinFreeBytes = -1
	now := time.UnixMilli(1_700_000_000_000)
	o.Now = func() time.Time { return now }
	return o
}

func mustOpen(t testing.TB, fsys vfs.FS, o Options) *Dir {
	t.Helper()
	d, err := OpenDir(fsys, testDir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return d
}

func mustCreate(t testing.TB, d *Dir, topic string, p int32) *Log {
	t.Helper()
	l, err := d.Create(topic, p, ID{1, 2, 3})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return l
}

func mustClose(t testing.TB, d *Dir) {
	t.Helper()
	if err := d.Close(&CleanStop{BrokerEpoch: 7}); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// makeBatch makes a batch of records with the given time and value size.
func makeBatch(records int, ts int64, size int) batch.Batch {
	b := batch.NewBuilder(ts)
	for i := range records {
		b.Add(ts+int64(i), []byte("k"), bytes.Repeat([]byte{byte('a' + i%26)}, size))
	}
	return b.Bytes()
}

func producerBatchOf(id int64, epoch int16, seq int32, records int) batch.Batch {
	b := batch.NewBuilder(1000)
	for i := range records {
		b.Add(1000+int64(i), nil, []byte("v"))
	}
	b.Producer(id, epoch, seq)
	return b.Bytes()
}

func mustAppend(t testing.TB, l *Log, b batch.Batch, e batch.Epoch) Appended {
	t.Helper()
	a, err := l.AppendLeader(b, e)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return a
}

// readAll returns all batches from the start to the end, and checks that they
// are whole and follow each other.
func readLog(l *Log, maxBytes int) ([]batch.Batch, error) {
	var out []batch.Batch
	for at := l.Start(); at < l.End(); {
		r, err := l.Read(at, l.End(), maxBytes)
		if err != nil {
			return out, err
		}
		p := make([]byte, r.Len())
		_, err = r.ReadAt(p, 0)
		end, firstLen := r.End(), r.FirstBatchLen()
		first := r.First()
		r.Release()
		if err != nil {
			return out, fmt.Errorf("read range at %d: %w", at, err)
		}
		if len(p) == 0 {
			return out, fmt.Errorf("empty range at %d of %d", at, l.End())
		}
		for b, err := range batch.Run(p).Batches() {
			if err != nil {
				return out, err
			}
			if err := b.CheckCRC(); err != nil {
				return out, err
			}
			if b.Base() != first && b.Base() != at {
				return out, fmt.Errorf("batch at %d, expected %d", b.Base(), at)
			}
			if firstLen > 0 && len(b) != firstLen {
				return out, fmt.Errorf("first batch has %d bytes, not %d", len(b), firstLen)
			}
			firstLen = 0
			at = b.End()
			out = append(out, b)
		}
		if at != end {
			return out, fmt.Errorf("range ends at %d, not %d", at, end)
		}
	}
	return out, nil
}

// seeded returns a source whose seed the test prints when it fails.
func seeded(t testing.TB, seed int64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewSource(seed))
}

func wantErr(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}
