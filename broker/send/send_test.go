package send

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const patient = 20 * time.Second

// TestSharedFile has many responses sent from one open file at once. Sending
// from the file's own position mixes them up.
func TestSharedFile(t *testing.T) {
	const each, responses = 1 << 20, 32
	content := pattern(each * 4)
	f := onDisk(t, content)
	var all sync.WaitGroup
	for i := range responses {
		c := loopback(t, 0)
		pos := int64(i * 4099)
		r := &ranged{f: f, pos: pos, n: each}
		head := []byte("headtail")
		got := received(c.client, len(head)+each)
		all.Go(func() {
			if err := respond(c.server, head, []Hole{{At: 4, Size: each}}, patient, r); err != nil {
				t.Errorf("response %d: %v", i, err)
			}
			p := <-got
			want := append(append([]byte("head"), content[pos:pos+each]...), "tail"...)
			checkBytes(t, p, want)
			checkDone(t, r)
		})
	}
	all.Wait()
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != int64(len(content)) {
		t.Errorf("the file's position moved to %d, error %v", at, err)
	}
}

// drawResponse makes a response of random shape and what it must look like.
func drawResponse(t *rapid.T, f *os.File, content []byte) ([]byte, []Hole, []*ranged, []byte) {
	sizes := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 300), rapid.IntRange(copyBelow-1, copyBelow+1),
		rapid.IntRange(bufferBytes-1, bufferBytes+1), rapid.IntRange(0, 300_000))
	var (
		head, want []byte
		holes      []Hole
		rs         []*ranged
	)
	for range rapid.IntRange(0, 6).Draw(t, "ranges") {
		piece := pattern(sizes.Draw(t, "piece"))
		n := sizes.Draw(t, "size")
		pos := rapid.IntRange(0, len(content)-n).Draw(t, "pos")
		head = append(head, piece...)
		want = append(append(want, piece...), content[pos:pos+n]...)
		holes = append(holes, Hole{At: len(head), Size: n})
		rs = append(rs, &ranged{f: f, pos: int64(pos), n: n, onlyCopy: rapid.Bool().Draw(t, "only copy")})
	}
	last := pattern(sizes.Draw(t, "last"))
	return append(head, last...), holes, rs, append(want, last...)
}

func TestAnyShape(t *testing.T) {
	content := pattern(1 << 20)
	f := onDisk(t, content)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			c := kind.dial(t)
			rapid.Check(t, func(rt *rapid.T) {
				head, holes, rs, want := drawResponse(rt, f, content)
				got := received(c.client, len(want))
				if err := respond(c.server, head, holes, patient, rs...); err != nil {
					rt.Fatal(err)
				}
				if p := <-got; !bytes.Equal(p, want) {
					rt.Fatalf("got %d bytes, want %d; they part at %d", len(p), len(want), differ(p, want))
				}
				checkDone(t, rs...)
			})
		})
	}
}

// TestHoldEndsBeforeTheWait has a peer that reads nothing: it must not keep the
// only place at the gate.
func TestHoldEndsBeforeTheWait(t *testing.T) {
	const size = 32 << 20
	content := pattern(size)
	f := onDisk(t, content)
	gate := make(chan struct{}, 1)
	slow, fast := loopback(t, 0), loopback(t, 0)
	a := &ranged{f: f, n: size, gate: gate}
	b := &ranged{f: f, n: size, gate: gate}
	done := make(chan error, 1)
	go func() { done <- respond(slow.server, nil, []Hole{{Size: size}}, patient, a) }()

	got := received(fast.client, size)
	if err := respond(fast.server, nil, []Hole{{Size: size}}, patient, b); err != nil {
		t.Fatal(err)
	}
	checkBytes(t, <-got, content)
	checkDone(t, b)

	checkBytes(t, <-received(slow.client, size), content)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	checkDone(t, a)
	if n := a.holds.Load(); n < 3 {
		t.Errorf("32 MiB to a slow peer took %d holds", n)
	}
}

// bufferless notes whether its sender has a buffer while the file is sent.
type bufferless struct {
	*ranged
	s      *sender
	buffer bool
}

func (b *bufferless) hold() (file, error) {
	b.buffer = b.buffer || b.s.block != nil
	return b.ranged.hold()
}

// TestNoBufferBesideTheFile: a response that waits in sendfile holds no buffer, and
// takes one again for what comes after.
func TestNoBufferBesideTheFile(t *testing.T) {
	const size = 4 << 20
	content := pattern(size)
	c := loopback(t, 0)
	b := &bufferless{ranged: &ranged{f: onDisk(t, content), n: size}}
	s := senders.Get().(*sender)
	defer s.recycle()
	b.s, s.sources = s, append(s.sources, b)
	got := received(c.client, size+8)
	if err := s.respond(c.server, []byte("headtail"), []Hole{{At: 4, Size: size}}, patient); err != nil {
		t.Fatal(err)
	}
	s.release()
	checkBytes(t, <-got, slices.Concat([]byte("head"), content, []byte("tail")))
	checkDone(t, b.ranged)
	if b.buffer || b.holds.Load() == 0 {
		t.Errorf("the file was held %d times, with a buffer: %v", b.holds.Load(), b.buffer)
	}
}

// TestSlowPeer reads for longer than the stall time, but never stops.
func TestSlowPeer(t *testing.T) {
	const size, stall = 2 << 20, 500 * time.Millisecond
	content := pattern(size)
	for _, onlyCopy := range []bool{false, true} {
		c := loopback(t, 64<<10)
		r := &ranged{f: onDisk(t, content), n: size, onlyCopy: onlyCopy}
		done := make(chan error, 1)
		go func() { done <- respond(c.server, nil, []Hole{{Size: size}}, stall, r) }()
		began := time.Now()
		var got []byte
		p := make([]byte, size/25)
		for tick := time.NewTicker(40 * time.Millisecond); len(got) < size; <-tick.C {
			n, err := c.client.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p[:n]...)
		}
		if err := <-done; err != nil {
			t.Errorf("only copy %v: %v", onlyCopy, err)
		}
		checkBytes(t, got, content)
		checkDone(t, r)
		if took := time.Since(began); took < stall {
			t.Errorf("the peer took %v, which shows nothing with a stall time of %v", took, stall)
		}
	}
}

func TestSlowPeerInFakeTime(t *testing.T) {
	content := pattern(1 << 20)
	f := onDisk(t, content)
	synctest.Test(t, func(t *testing.T) {
		c := piped(t)
		defer c.close()
		r := &ranged{f: f, n: len(content)}
		done := make(chan error, 1)
		go func() { done <- respond(c.server, nil, []Hole{{Size: r.n}}, time.Second, r) }()
		began := time.Now()
		var got []byte
		for p := make([]byte, bufferBytes); len(got) < r.n; {
			<-time.After(800 * time.Millisecond)
			n, err := io.ReadFull(c.client, p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p[:n]...)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		checkBytes(t, got, content)
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("took %v in fake time, want more than many stall times", took)
		}
	})
}

func TestPeerThatTakesNothing(t *testing.T) {
	const size = 64 << 20
	f := onDisk(t, nil)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		for _, onlyCopy := range []bool{false, true} {
			c := kind.dial(t)
			if _, ok := c.client.(*net.TCPConn); !ok && !onlyCopy {
				continue
			}
			go io.CopyN(io.Discard, c.client, 100)
			r := &ranged{f: f, n: size, onlyCopy: onlyCopy}
			err := respond(c.server, make([]byte, 100), []Hole{{At: 100, Size: size}}, 50*time.Millisecond, r)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s, only copy %v: got %v, want a deadline exceeded", kind.name, onlyCopy, err)
			}
			checkDone(t, r)
		}
	}
}

func TestPeerThatCloses(t *testing.T) {
	const size = 32 << 20
	f := onDisk(t, nil)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		c := kind.dial(t)
		go func() {
			io.CopyN(io.Discard, c.client, 1<<20)
			c.client.Close()
		}()
		a, b := &ranged{f: f, n: size}, &ranged{f: f, n: size}
		err := respond(c.server, []byte("x"), []Hole{{At: 1, Size: size}, {At: 1, Size: size}}, patient, a, b)
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %v, want the peer's close", kind.name, err)
		}
		checkDone(t, a, b)
	}
}

func TestOwnClose(t *testing.T) {
	for _, kind := range kinds {
		c := kind.dial(t)
		c.server.Close()
		r := &ranged{f: onDisk(t, pattern(100_000)), n: 100_000}
		if err := respond(c.server, []byte("head"), []Hole{{At: 4, Size: r.n}}, patient, r); err == nil {
			t.Errorf("%s: a response to a closed connection went well", kind.name)
		}
		checkDone(t, r)
	}
}

func TestShortFile(t *testing.T) {
	for _, have := range []int{0, 10, 70_000} {
		for _, n := range []int{copyBelow - 1, copyBelow, 200_000} {
			if have >= n {
				continue
			}
			for _, onlyCopy := range []bool{false, true} {
				c := loopback(t, 0)
				go io.Copy(io.Discard, c.client)
				r := &ranged{f: onDisk(t, pattern(have)), n: n, onlyCopy: onlyCopy}
				after := &ranged{f: r.f, n: 5}
				err := respond(c.server, []byte("head"), []Hole{{At: 4, Size: n}, {At: 4, Size: 5}}, patient, r, after)
				if !errors.Is(err, ErrShortFile) {
					t.Errorf("%d bytes of %d, only copy %v: got %v, want ErrShortFile", have, n, onlyCopy, err)
				}
				checkDone(t, r, after)
			}
		}
	}
}

func TestStorageErrors(t *testing.T) {
	bad := errors.New("the folder is offline")
	f := onDisk(t, pattern(100_000))
	for name, r := range map[string]*ranged{
		"hold":       {f: f, n: 100_000, holdErr: bad},
		"small read": {f: f, n: 100, readErr: bad},
		"copy":       {f: f, n: 100_000, onlyCopy: true, readErr: bad},
	} {
		c := loopback(t, 0)
		go io.Copy(io.Discard, c.client)
		if err := respond(c.server, nil, []Hole{{Size: r.n}}, patient, r); !errors.Is(err, bad) {
			t.Errorf("%s: got %v, want the storage's error", name, err)
		}
		checkDone(t, r)
	}
}

// TestFileThatCannotBeSent has a descriptor that sendfile refuses.
func TestFileThatCannotBeSent(t *testing.T) {
	content := pattern(100_000)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := loopback(t, 0)
	r := &refusing{ranged: ranged{f: onDisk(t, content), n: len(content)}, fd: int(dir.Fd())}
	s := senders.Get().(*sender)
	defer s.recycle()
	s.sources = append(s.sources, r)
	got := received(c.client, len(content))
	if err := s.respond(c.server, nil, []Hole{{Size: r.n}}, patient); err != nil {
		t.Fatal(err)
	}
	checkBytes(t, <-got, content)
}

type refusing struct {
	ranged
	fd int
}

func (r *refusing) hold() (file, error) {
	f, err := r.ranged.hold()
	f.fd = r.fd
	return f, err
}

func TestHeadOnly(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{0, 1, bufferBytes - 1, bufferBytes, bufferBytes + 1, 3*bufferBytes + 5} {
			c := kind.dial(t)
			head := pattern(n)
			got := received(c.client, n)
			if err := Response(c.server, head, nil, nil, patient); err != nil {
				t.Fatalf("%s, %d bytes: %v", kind.name, n, err)
			}
			checkBytes(t, <-got, head)
		}
	}
}

func TestDeadlineIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t)
		defer c.close()
		got := received(c.client, 4)
		if err := Response(c.server, []byte("head"), nil, nil, time.Second); err != nil {
			t.Fatal(err)
		}
		<-got
		<-time.After(time.Minute)
		got = received(c.client, 4)
		if _, err := c.server.Write([]byte("more")); err != nil {
			t.Errorf("a later write of another: %v", err)
		}
		<-got
	})
}

func TestBrokenShapes(t *testing.T) {
	f := onDisk(t, pattern(1000))
	for name, c := range map[string]struct {
		holes []Hole
		sizes []int
	}{
		"more holes":   {[]Hole{{0, 5}, {1, 5}}, []int{5}},
		"more ranges":  {[]Hole{{0, 5}}, []int{5, 5}},
		"other size":   {[]Hole{{0, 6}}, []int{5}},
		"past the end": {[]Hole{{11, 5}}, []int{5}},
		"negative":     {[]Hole{{-1, 5}}, []int{5}},
		"descending":   {[]Hole{{8, 5}, {7, 5}}, []int{5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			var rs []*ranged
			for _, n := range c.sizes {
				rs = append(rs, &ranged{f: f, n: n})
			}
			defer func() {
				if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "BUG: ") {
					t.Errorf("recovered %q, want a BUG", msg)
				}
				checkDone(t, rs...)
			}()
			_ = respond(loopback(t, 0).server, make([]byte, 10), c.holes, patient, rs...)
		})
	}
}
