package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// cleanFolder is a stopped folder with one log of several segments, and its batches.
func cleanFolder(t testing.TB) (*vfs.Mem, []batch.Batch) {
	m := vfs.NewMem(1)
	o := testOptions()
	o.SegmentBytes = 1500
	d := mustOpen(t, m, o)
	l := mustCreate(t, d, "t", 0)
	for i := range 40 {
		mustAppend(t, l, makeBatch(1+i%3, int64(1000+i*7%50), 10*(i%8)), batch.Epoch(i/9))
		mustAppend(t, l, producerBatchOf(4, 0, int32(i), 1), batch.Epoch(i/9))
		if i%11 == 0 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	batches, err := readLog(l, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	return m, batches
}

// mutate changes the files of a folder as a script says: seven bytes a step.
func mutate(t testing.TB, m *vfs.Mem, dir string, script []byte) (names []string) {
	for ; len(script) >= 7; script = script[7:] {
		entries, err := m.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			return names
		}
		name := entries[int(script[0])%len(entries)].Name()
		names = append(names, name)
		path := filepath.Join(dir, name)
		f, err := m.Open(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		pos := int64(binary.BigEndian.Uint32(script[2:])) % (size + 1)
		p := make([]byte, 1)
		switch script[1] % 8 {
		case 0:
			err = m.Remove(path)
		case 1:
			err = f.Truncate(pos)
		case 2:
			err = f.Truncate(size + int64(script[6]))
		case 3:
			_, err = f.WriteAt(make([]byte, script[6]), pos)
		case 4:
			_, err = f.Write(bytes.Repeat(script[5:7], 40))
		default:
			f.ReadAt(p, pos)
			p[0] ^= script[6]
			_, err = f.WriteAt(p, pos)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// FuzzRecover changes the files of a log, opens it and uses it. Nothing panics;
// what is served above the recovery point was appended; and unless the log
// reports damage it can be appended to, stopped and opened again.
func FuzzRecover(f *testing.F) {
	clean, batches := cleanFolder(f)
	end := batches[len(batches)-1].End()
	f.Add([]byte{1, 5, 0, 0, 0, 30, 1}, uint16(0), false)
	f.Add([]byte{1, 1, 0, 0, 1, 30, 1}, uint16(end), true)
	f.Add([]byte{0, 0, 0, 0, 1, 30, 1, 4, 3, 0, 0, 0, 7, 200}, uint16(60), false)
	f.Add([]byte{6, 4, 0, 0, 1, 30, 1, 8, 2, 0, 0, 0, 7, 200}, uint16(60), true)
	f.Fuzz(func(t *testing.T, script []byte, recovery uint16, orderly bool) {
		m := clean.ProcessClone()
		point := batch.Offset(recovery) % (end + 1)
		err := WriteFileAtomic(m, filepath.Join(testDir, recoveryFile), encodeLines([]string{fmt.Sprintf("t 0 %d", point)}))
		if err == nil && !orderly {
			err = m.Remove(filepath.Join(testDir, cleanStopFile))
		}
		if err != nil {
			t.Fatal(err)
		}
		names := mutate(t, m, filepath.Join(testDir, "t-0"), script)
		d, err := OpenDir(m, testDir, testOptions())
		if err != nil {
			t.Fatalf("open after changing %v: %v", names, err)
		}
		l := d.Log("t", 0)
		useRecovered(t, l, batches, point)
		if err := d.Close(nil); err != nil {
			t.Fatal(err)
		}
		if l.Damaged() == nil {
			reopen(t, m, l, point)
		}
	})
}

func useRecovered(t *testing.T, l *Log, batches []batch.Batch, point batch.Offset) {
	got, err := readLog(l, 500)
	var corrupt *CorruptError
	var bad *batch.CorruptError
	if err != nil && !errors.As(err, &corrupt) && !errors.As(err, &bad) {
		t.Logf("read: %v", err) // a batch below the recovery point that claims other offsets
	}
	for _, b := range got {
		if b.Base() < point {
			continue
		}
		i, found := slices.BinarySearchFunc(batches, b.Base(), func(x batch.Batch, o batch.Offset) int { return int(x.Base() - o) })
		if !found || !sameButEpoch(batches[i], b) {
			t.Fatalf("a batch at %d was never appended; recovery point %d", b.Base(), point)
		}
	}
	l.OffsetAt(1010, l.End())
	l.MaxTimestamp(l.End())
	l.EpochEnd(2)
	if l.Damaged() != nil {
		_, err := l.AppendLeader(makeBatch(1, 1, 1), l.LastEpoch()+1)
		if !errors.As(err, &corrupt) {
			t.Fatalf("a damaged log takes an append: %v", err)
		}
		return
	}
	if a, err := l.AppendLeader(makeBatch(1, 1, 1), l.LastEpoch()+1); err != nil || a.Last != l.End()-1 {
		t.Fatalf("append: %+v, %v", a, err)
	}
}

// sameButEpoch compares batches without the leader epoch, which the CRC does not cover.
func sameButEpoch(a, b batch.Batch) bool {
	return len(a) == len(b) && bytes.Equal(a[:12], b[:12]) && bytes.Equal(a[16:], b[16:])
}

// reopen expects the log as it was, unless it finds damage below the recovery
// point of the first time that lay where nothing was read then.
func reopen(t *testing.T, m *vfs.Mem, before *Log, point batch.Offset) {
	d, err := OpenDir(m, testDir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := d.Log("t", 0)
	damage := l.damage.Load()
	if damage != nil && damage.Offset >= point || damage == nil && (l.Start() != before.Start() || l.End() != before.End()) {
		t.Fatalf("opened again: %d..%d, %v; it was %d..%d", l.Start(), l.End(), l.Damaged(), before.Start(), before.End())
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse gives the readers of the small files anything. What they accept they
// write again as they read it.
func FuzzParse(f *testing.F) {
	f.Add([]byte("0\n1\n3 4\n"))
	f.Add([]byte("0\n1\nt 3 4\n"))
	f.Add([]byte(`{"version":0,"brokerEpoch":3}`))
	f.Add(encodeMetadata(ID{1}))
	var ps producers
	ps.noteBatch(producerBatchOf(1, 2, 3, 4), 5)
	f.Add(ps.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		if es, err := parseEpochs(p); err == nil {
			again, err := parseEpochs(es.encode())
			if err != nil || !slices.Equal(es, again) {
				t.Fatalf("epochs %v come back as %v, %v", es, again, err)
			}
		}
		if id, err := parseMetadata(p); err == nil {
			if again, err := parseMetadata(encodeMetadata(id)); err != nil || again != id {
				t.Fatalf("topic id %s comes back as %s, %v", id, again, err)
			}
		}
		parseOffsets(p)
		parseCleanStop(p)
		var ps, again producers
		if ps.decode(p, 7) != nil {
			return
		}
		q := ps.encode()
		if err := again.decode(q, 7); err != nil || !bytes.Equal(again.encode(), q) {
			t.Fatalf("a snapshot does not come back: %v", err)
		}
	})
}
