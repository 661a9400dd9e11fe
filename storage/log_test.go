package storage

import (
	"bytes"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
)

func TestAppendReadReopen(t *testing.T) {
	m := vfs.NewMem(1)
	d := mustOpen(t, m, testOptions())
	l := mustCreate(t, d, "topic", 0)
	var want [][]byte
	for i := range 100 {
		b := makeBatch(1+i%3, int64(1000+i), 50+i)
		a := mustAppend(t, l, b, 3)
		if a.Duplicate || a.AppendTime != -1 || a.First != b.Base() {
			t.Fatalf("appended %+v", a)
		}
		want = append(want, bytes.Clone(b))
	}
	same := func(when string, l *Log) {
		t.Helper()
		for _, most := range []int{1, 300, 1000, 1 << 20} {
			got, err := readLog(l, most)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if len(got) != len(want) {
				t.Fatalf("%s: got %d batches, want %d", when, len(got), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("%s: batch %d differs", when, i)
				}
			}
		}
	}
	same("appended", l)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if l.Flushed() != l.End() {
		t.Fatalf("flushed to %d of %d", l.Flushed(), l.End())
	}
	same("flushed", l)
	mustClose(t, d)
	if err := Check(m, testDir); err != nil {
		t.Fatalf("check: %v", err)
	}
	d = mustOpen(t, m, testOptions())
	if s, ok := d.PreviousStop(); !ok || s.BrokerEpoch != 7 {
		t.Fatalf("previous stop %v %v", s, ok)
	}
	l = d.Log("topic", 0)
	if l == nil || l.ID() != (ID{1, 2, 3}) {
		t.Fatalf("log %v", l)
	}
	same("reopened", l)
	mustClose(t, d)
}
