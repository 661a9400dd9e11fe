package send

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// filledLog is a log of many batches of about 10 KiB and what it must hold.
func filledLog(t *testing.T, fsys vfs.FS, path string, o storage.Options) (*storage.Log, []byte) {
	t.Helper()
	d, err := storage.OpenDir(fsys, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(nil); err != nil {
			t.Error(err)
		}
	})
	l, err := d.Create("events", 0, storage.ID{1})
	if err != nil {
		t.Fatal(err)
	}
	var content []byte
	for i := range 200 {
		b := batch.NewBuilder(1000)
		b.Add(1000, nil, pattern(10_000+i))
		p := b.Bytes()
		if _, err := l.AppendLeader(p, 3); err != nil {
			t.Fatal(err)
		}
		content = append(content, p...)
	}
	return l, content
}

// wholeLog reads the log in ranges of about maxBytes and makes a response of them.
func wholeLog(t *testing.T, l *storage.Log, maxBytes int) (head []byte, holes []Hole, ranges []storage.Range) {
	t.Helper()
	for from := l.Start(); from < l.End(); {
		r, err := l.Read(from, l.End(), maxBytes)
		if err != nil {
			t.Error(err)
			return
		}
		head = append(head, "head"...)
		holes = append(holes, Hole{At: len(head), Size: r.Len()})
		ranges = append(ranges, r)
		from = r.End()
	}
	return head, holes, ranges
}

func folders(t *testing.T) map[string]func() (vfs.FS, string) {
	return map[string]func() (vfs.FS, string){
		"disk":   func() (vfs.FS, string) { return vfs.OS(), t.TempDir() },
		"memory": func() (vfs.FS, string) { return vfs.NewMem(1), "data" },
	}
}

// TestLog has many responses sent at once from the segments of one log.
func TestLog(t *testing.T) {
	for name, folder := range folders(t) {
		t.Run(name, func(t *testing.T) {
			o := storage.DefaultOptions()
			o.SegmentBytes, o.GateWidth, o.MaxOpenFiles = 700_000, 4, 4
			fsys, path := folder()
			l, content := filledLog(t, fsys, path, o)
			var all sync.WaitGroup
			for i := range 32 {
				c := kinds[i%len(kinds)].dial(t)
				all.Go(func() {
					head, holes, ranges := wholeLog(t, l, 5_000*(i+1))
					got := received(c.client, len(content)+len(head))
					if err := Response(c.server, head, holes, ranges, patient); err != nil {
						t.Errorf("response %d: %v", i, err)
						c.close()
					}
					p := <-got
					var records []byte
					for _, h := range holes {
						if len(p) < 4+h.Size {
							t.Errorf("response %d is cut short", i)
							return
						}
						records = append(records, p[4:4+h.Size]...)
						p = p[4+h.Size:]
					}
					checkBytes(t, records, content)
				})
			}
			all.Wait()
		})
	}
}

// TestCutLog has a log cut between the read and the response: what arrives are
// the old bytes, or the response fails. The file goes only after the release.
func TestCutLog(t *testing.T) {
	for name, folder := range folders(t) {
		t.Run(name, func(t *testing.T) {
			fsys, path := folder()
			l, content := filledLog(t, fsys, path, storage.DefaultOptions())
			head, holes, ranges := wholeLog(t, l, 1<<20)
			if err := l.TruncateTo(5); err != nil {
				t.Fatal(err)
			}
			c := loopback(t, 0)
			got := received(c.client, len(content)+len(head))
			err := Response(c.server, head, holes, ranges, patient)
			c.server.Close()
			p := bytes.TrimPrefix(<-got, []byte("head"))
			if err != nil && !errors.Is(err, ErrShortFile) && !errors.Is(err, storage.ErrClosed) {
				t.Errorf("got %v, want ErrShortFile", err)
			}
			if err == nil && len(p) < len(content) {
				t.Errorf("got %d bytes of %d without an error", len(p), len(content))
			}
			first := min(len(p), holes[0].Size)
			checkBytes(t, p[:first], content[:first])
		})
	}
}

// TestEmptyRange has a partition without records among others.
func TestEmptyRange(t *testing.T) {
	c := loopback(t, 0)
	got := received(c.client, 4)
	if err := Response(c.server, []byte("head"), []Hole{{At: 2}}, []storage.Range{{}}, patient); err != nil {
		t.Fatal(err)
	}
	checkBytes(t, <-got, []byte("head"))
}

// TestSteadyStateAllocates counts what one response of a busy connection costs.
func TestSteadyStateAllocates(t *testing.T) {
	l, _ := filledLog(t, vfs.OS(), t.TempDir(), storage.DefaultOptions())
	c := loopback(t, 0)
	go io.Copy(io.Discard, c.client)
	head, holes := []byte("headtail"), []Hole{{At: 4}}
	ranges := make([]storage.Range, 1)
	got := allocs.Least(func() {
		r, err := l.Read(0, l.End(), 500_000)
		if err != nil {
			t.Fatal(err)
		}
		ranges[0], holes[0].Size = r, r.Len()
		if err := Response(c.server, head, holes, ranges, patient); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	})
	if got > 4 {
		t.Errorf("a response of 500 KB allocates %v times, want at most 4", got)
	}
}
