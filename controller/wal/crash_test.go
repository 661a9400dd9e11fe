package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/storage/vfs"
)

// model is what a log should hold. Its parts are replaced, never changed.
type model struct {
	entries []*raft.Log
	values  map[string][]byte
}

func (m model) first() uint64 {
	if len(m.entries) == 0 {
		return 0
	}
	return m.entries[0].Index
}

func (m model) last() uint64 {
	if len(m.entries) == 0 {
		return 0
	}
	return m.entries[len(m.entries)-1].Index
}

func (m model) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d to %d\n", m.first(), m.last())
	for _, e := range m.entries {
		out.WriteString(text(e))
	}
	writeValues(&out, m.values)
	return out.String()
}

// change is one operation on a log, and what it makes of the model.
type change struct {
	name string
	do   func(*Log) error
	then model
}

// randomChange chooses what happens to a log that holds m.
func randomChange(rng *rand.Rand, m model) change {
	es := func(first uint64) []*raft.Log {
		var es []*raft.Log
		for i := range 1 + rng.Uint64N(4) {
			size := rng.IntN(300)
			if rng.IntN(8) == 0 {
				size = rng.IntN(9000)
			}
			data := make([]byte, size) // zeros, so that sectors are empty
			if rng.IntN(2) == 0 {
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
			}
			es = append(es, &raft.Log{Index: first + i, Term: rng.Uint64N(9), Data: data})
		}
		return es
	}
	switch n := rng.IntN(12); {
	case n < 6:
		first := m.last() + 1
		if m.last() == 0 {
			first += rng.Uint64N(100)
		}
		add := es(first)
		return change{"append", func(l *Log) error { return l.StoreLogs(add) }, model{append(m.entries[:len(m.entries):len(m.entries)], add...), m.values}}
	case n < 8 && len(m.entries) > 1: // another leader's replace the newest
		keep := 1 + rng.IntN(len(m.entries)-1)
		from := m.entries[keep].Index
		add := es(from)
		return change{"replace", func(l *Log) error {
			return errors.Join(l.DeleteRange(from, m.last()), l.StoreLogs(add))
		}, model{append(m.entries[:keep:keep], add...), m.values}}
	case n < 10 && len(m.entries) > 0:
		gone := 1 + rng.IntN(len(m.entries))
		if rng.IntN(4) > 0 {
			gone = (gone + 1) / 2
		}
		last := m.entries[gone-1].Index
		return change{"delete", func(l *Log) error { return l.DeleteRange(m.first(), last) }, model{m.entries[gone:], m.values}}
	}
	key, value := fmt.Sprint("key ", rng.IntN(3)), make([]byte, rng.IntN(700))
	values := map[string][]byte{key: value}
	for k, v := range m.values {
		if k != key {
			values[k] = v
		}
	}
	return change{"set", func(l *Log) error { return l.Set([]byte(key), value) }, model{m.entries, values}}
}

// crasher is a file system that crashes, as a copy, before each call that changes something.
type crasher struct {
	*vfs.Faulty
	t    *testing.T
	mem  *vfs.Mem
	rng  *rand.Rand
	what string
	// now and next are what a log may hold after a crash; next only when it is on its way.
	now, next string
	crashes   int
	torn      int
}

func newCrasher(t *testing.T, rng *rand.Rand) *crasher {
	c := &crasher{t: t, mem: newMem(t), rng: rng}
	c.Faulty = vfs.NewFaulty(c.mem, func(op vfs.Op, name string) error {
		if op.Mutates() {
			c.crash(string(op) + " of " + name)
		}
		return nil
	})
	return c
}

// crash opens what is left, more than once, and goes on with it.
func (c *crasher) crash(where string) {
	for range 2 {
		left := c.left()
		l, err := open(left, "raft", small/4)
		if err != nil {
			c.t.Fatalf("%s, before %s: %v", c.what, where, err)
		}
		got := mustContent(c.t, l)
		if got != c.now && got != c.next {
			c.t.Fatalf("%s, before %s: the log holds\n%s\nwant\n%s\nor\n%s", c.what, where, got, c.now, c.next)
		}
		c.crashes++
		last, _ := l.LastIndex()
		err = errors.Join(l.StoreLogs(entries(last+1, last+1, 77, 600)), l.Set([]byte("after"), []byte("crash")))
		if err != nil {
			c.t.Fatalf("%s, before %s: to go on: %v", c.what, where, err)
		}
		want := mustContent(c.t, l)
		again, err := open(left.CrashClone(0), "raft", small/4)
		if err != nil {
			c.t.Fatalf("%s, before %s: the next start: %v", c.what, where, err)
		}
		if got := mustContent(c.t, again); got != want {
			c.t.Fatalf("%s, before %s: after the next start\n%s\nwant\n%s", c.what, where, got, want)
		}
	}
}

// left is the disk after a crash. Mem cuts a write anywhere; a disk writes a sector or does not.
func (c *crasher) left() *vfs.Mem {
	left, then, now := c.mem.CrashClone(1+c.rng.Int64N(1<<40)), c.mem.CrashClone(0), c.mem.ProcessClone()
	list, err := left.ReadDir("raft")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list {
		path := filepath.Join("raft", e.Name())
		got, err := vfs.ReadFile(left, path)
		if err != nil {
			c.t.Fatal(err)
		}
		was, _ := vfs.ReadFile(then, path) // may not be there
		is, _ := vfs.ReadFile(now, path)
		if len(was) != len(got) || len(is) != len(got) {
			continue // not finished
		}
		f, err := left.Open(path, os.O_RDWR, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		for at := 0; at < len(got); at += sectorBytes {
			a, b := was[at:at+sectorBytes], is[at:at+sectorBytes]
			if bytes.Equal(a, b) {
				continue
			}
			sector := a
			if c.rng.IntN(2) == 0 {
				sector = b
			}
			if got := got[at : at+sectorBytes]; bytes.Equal(got, a) || bytes.Equal(got, b) {
				continue
			}
			c.torn++
			if _, err := f.WriteAt(sector, int64(at)); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			c.t.Fatal(err)
		}
	}
	return left
}

// Open, Lock and the rest are Faulty's; these are what it is asked about.
var _ interface {
	Lock(string) (io.Closer, error)
	Open(string, int, fs.FileMode) (vfs.File, error)
} = (*crasher)(nil)

// TestCrashAnywhere does random things with a log, and crashes before each call of the file
// system on the way: it then holds what it held before or after the change.
func TestCrashAnywhere(t *testing.T) {
	seeds.Alone(t)
	rng := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	crashes, rolls, removed := 0, 0, 0
	for range 2 {
		c := newCrasher(t, rng)
		m := model{values: map[string][]byte{}}
		c.what, c.now = "the first start", m.String()
		l, err := open(c, "raft", small/4)
		if err != nil {
			t.Fatal(err)
		}
		for step := range 50 {
			ch := randomChange(rng, m)
			c.what, c.next = fmt.Sprintf("step %d, %s", step, ch.name), ch.then.String()
			if err := ch.do(l); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			m, c.now = ch.then, c.next
			if got := mustContent(t, l); got != c.now {
				t.Fatalf("%s: the log holds\n%s\nwant\n%s", c.what, got, c.now)
			}
			switch rng.IntN(10) {
			case 0, 1:
				c.what += ", then the keeper"
				mustTend(t, l)
			case 2:
				c.what += ", then a restart"
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l, err = open(c, "raft", small/4); err != nil {
					t.Fatal(err)
				}
			}
		}
		rolls += int(l.inUse().seq)
		removed += int(l.segments[0].seq)
		crashes += c.crashes
		if c.torn == 0 {
			t.Error("no write was torn")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d crashes, %d segments, %d of them removed", crashes, rolls, removed)
	if crashes < 500 || rolls < 15 || removed < 8 {
		t.Error("the trial tries too little")
	}
}
