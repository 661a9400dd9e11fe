package wal

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
)

// reseal makes any content sectors that their seals confirm.
func reseal(content []byte) []byte {
	var identity [16]byte
	s := newSealer(identity, 1)
	b := make([]byte, max(pages(int64(len(content)+sectorData-1)/sectorData*sectorBytes)+pageBytes, 2*pageBytes))
	copy(b, encodeHead(identity, 1, int64(len(b))))
	for at := pageBytes; len(content) > 0; at += sectorBytes {
		n := copy(b[at:at+sectorData], content)
		content = content[n:]
		r := roleFurther
		if k := kind(b[at]); at%pageBytes == 0 && k >= kindEntries && k <= kindClose {
			r = roleFirst
		}
		if !isZero(b[at : at+sectorData]) {
			s.put(b[at:], int64(at), r)
		}
	}
	return b
}

// FuzzOpen opens anything: as it is, and with seals that confirm it. It then is damaged, or a
// log that can be read and gone on with.
func FuzzOpen(f *testing.F) {
	for _, b := range newSample(f, 20<<10).files {
		f.Add(b, false)
		f.Add(appendContent(nil, b[pageBytes:], pageBytes), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if len(b) > 1<<20 {
			return
		}
		if sealed {
			b = reseal(b)
		}
		m := newMem(t)
		file, err := m.Open(segmentPath("raft", 1), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		l, err := open(m, "raft", small)
		if err != nil {
			if d := (*DamageError)(nil); !errors.As(err, &d) {
				t.Fatal(err)
			}
			return
		}
		defer func() { _ = l.Close() }()
		before := mustContent(t, l)
		again := openQuiet(t, m.CrashClone(0))
		if after := mustContent(t, again); after != before {
			t.Fatalf("it opens with\n%s\nthen with\n%s", before, after)
		}
		last, _ := l.LastIndex()
		if last+1 == 0 {
			return
		}
		if err := errors.Join(l.StoreLogs(entries(last+1, last+1, 1, 1)), l.Set([]byte("k"), binary.BigEndian.AppendUint64(nil, last))); err != nil {
			t.Fatal(err)
		}
	})
}
