package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/wire"
)

// testReader is a frameReader on one end of a pipe; the test writes to the other.
func testReader(t *testing.T, memory int64) (*frameReader, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	return &frameReader{
		c: here,
		limits: frameLimits{idle: time.Minute, step: 30 * time.Second, most: 1 << 30, of: func(k wire.Key) (apiLimits, bool) {
			return apiLimits{maxBytes: 100 << 20}, k == wire.KeyProduce || k == wire.KeyMetadata
		}},
		budget:  newBudget(memory),
		buffers: new(buffers),
		busy:    func() bool { return false },
		ended:   func() error { return nil },
	}, there
}

// framed is a frame of key with a body of n bytes, length included.
func framed(key wire.Key, n int) []byte {
	p := make([]byte, lengthSize+n)
	binary.BigEndian.PutUint32(p, uint32(n))
	binary.BigEndian.PutUint16(p[lengthSize:], uint16(key))
	for i := lengthSize + 2; i < len(p); i++ {
		p[i] = byte(i * 7)
	}
	return p
}

func TestFrameSizes(t *testing.T) {
	f, client := testReader(t, 64<<20)
	sizes := []int{10, 11, 500, 507, 508, 509, 512, 600, 4 << 10, 5000, 64<<10 - 1, 64 << 10, 64<<10 + 1,
		320 << 10, 1 << 20, 1<<20 + 64<<10 + 1, 3 << 20}
	go func() {
		for _, n := range sizes {
			if _, err := client.Write(framed(wire.KeyProduce, n)); err != nil {
				t.Error(err)
			}
		}
		_ = client.Close()
	}()
	for _, n := range sizes {
		fr, err := f.next(t.Context())
		if err != nil {
			t.Fatalf("frame of %d bytes: %v", n, err)
		}
		if want := framed(wire.KeyProduce, n)[lengthSize:]; !bytes.Equal(fr.bytes, want) {
			t.Fatalf("frame of %d bytes came out different", n)
		}
		f.release(fr)
	}
	// A pipe that was closed by the other side has its own error for deadlines.
	if _, err := f.next(t.Context()); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("after the last frame: %v, want EOF", err)
	}
	if got := f.budget.unused(); got != 64<<20 {
		t.Fatalf("%d bytes of the budget are unused, want all", got)
	}
}

// Many frames in one write are read one by one.
func TestFramePipelined(t *testing.T) {
	f, client := testReader(t, 64<<20)
	var all []byte
	for n := 10; n < 900; n += 37 {
		all = append(all, framed(wire.KeyMetadata, n)...)
	}
	go func() {
		_, _ = client.Write(all)
		_ = client.Close()
	}()
	for n := 10; n < 900; n += 37 {
		fr, err := f.next(t.Context())
		if err != nil || len(fr.bytes) != n {
			t.Fatalf("frame of %d bytes: got %d, %v", n, len(fr.bytes), err)
		}
		f.release(fr)
	}
}

func TestFrameRefused(t *testing.T) {
	tests := []struct {
		name string
		send []byte
	}{
		{"length 0", []byte{0, 0, 0, 0}},
		{"length 3", []byte{0, 0, 0, 3}},
		{"length -1", []byte{0xff, 0xff, 0xff, 0xff}},
		{"length 2^31-1", []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 9}},
		{"length 2^31-1, and nothing after it", []byte{0x7f, 0xff, 0xff, 0xff}},
		{"http", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"tls hello", []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc}},
		{"unknown key", []byte{0, 0, 0, 20, 0x7f, 0xff, 0, 0}},
		{"negative key", []byte{0, 0, 0, 20, 0xff, 0xff, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, client := testReader(t, 1<<20)
			go func() { _, _ = client.Write(tt.send) }()
			_, err := f.next(t.Context())
			var bad *frameError
			if !errors.As(err, &bad) {
				t.Fatalf("next = %v, want a frameError", err)
			}
			if got := f.budget.unused(); got != 1<<20 {
				t.Fatalf("%d bytes of the budget are unused, want all", got)
			}
		})
	}
}

// What a request takes of the budget is what decoding it may take, or what answering
// it does, if that is more.
func TestFrameCharge(t *testing.T) {
	f, client := testReader(t, 256<<20)
	f.limits.of = func(k wire.Key) (apiLimits, bool) {
		return apiLimits{maxBytes: 1 << 20, factor: map[wire.Key]int{wire.KeyFetch: 16}[k]}, true
	}
	for key, factor := range map[wire.Key]int64{wire.KeyListOffsets: decodeFactor, wire.KeyFetch: 16} {
		const n = 100 // fits what is read ahead
		go func() { _, _ = client.Write(framed(key, n)) }()
		fr, err := f.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := 256<<20 - f.budget.unused(); got != factor*n {
			t.Errorf("%s of %d bytes takes %d of the budget, want %d", key, n, got, factor*n)
		}
		f.release(fr)
	}
	if got := (apiLimits{factor: 16}).charge(1 << 30); got != answerMax {
		t.Errorf("a huge request takes %d, want %d", got, answerMax)
	}
}

// A length alone takes no more than the first step.
func TestFrameLengthCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := testReader(t, 256<<20)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := f.next(ctx)
			done <- err
		}()
		if _, err := client.Write(framed(wire.KeyProduce, 100<<20)[:8]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if used := 256<<20 - f.budget.unused(); used > bufferFirst {
			t.Fatalf("a length of 100 MiB took %d bytes, want at most %d", used, bufferFirst)
		}
		if err := <-done; !errors.Is(err, errFrameSlow) { // the fake clock runs to the deadline
			t.Fatalf("next = %v, want errFrameSlow", err)
		}
		if got := f.budget.unused(); got != 256<<20 {
			t.Fatalf("%d bytes of the budget are unused, want all", got)
		}
	})
}

func TestFrameTimeouts(t *testing.T) {
	tests := []struct {
		name string
		send []byte        // at once
		drip time.Duration // between further bytes; 0 for none
		busy bool
		want error
		min  time.Duration
		max  time.Duration
	}{
		{name: "silence", want: errIdle, min: time.Minute, max: time.Minute},
		{name: "half a length", send: []byte{0, 0}, want: errFrameSlow, min: 30 * time.Second, max: 30 * time.Second},
		{name: "one byte each 10 s", send: framed(wire.KeyProduce, 1000)[:6], drip: 10 * time.Second, want: errFrameSlow, min: 30 * time.Second, max: time.Minute},
		{name: "drip of a large frame", send: framed(wire.KeyProduce, 1<<20)[:70<<10], drip: time.Second, want: errFrameSlow, min: 30 * time.Second, max: time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := testReader(t, 64<<20)
				stop := make(chan struct{})
				go func() {
					_, _ = client.Write(tt.send)
					for tt.drip > 0 {
						select {
						case <-stop:
							return
						case <-time.After(tt.drip):
						}
						_, _ = client.Write([]byte{1})
					}
				}()
				began := time.Now()
				_, err := f.next(t.Context())
				took := time.Since(began)
				close(stop)
				_ = f.c.Close()
				if !errors.Is(err, tt.want) || took < tt.min || took > tt.max {
					t.Fatalf("next = %v after %v, want %v after %v to %v", err, took, tt.want, tt.min, tt.max)
				}
			})
		})
	}
}

// Silence while requests are in flight is not idleness.
func TestFrameBusyIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := testReader(t, 64<<20)
		began := time.Now()
		f.busy = func() bool { return time.Since(began) < 3*time.Minute }
		_, err := f.next(t.Context())
		if took := time.Since(began); !errors.Is(err, errIdle) || took < 3*time.Minute {
			t.Fatalf("next = %v after %v, want errIdle after three minutes", err, took)
		}
	})
}

func TestFrameCut(t *testing.T) {
	for _, n := range []int{2, 7, 100, 3000, 70 << 10} {
		f, client := testReader(t, 64<<20)
		go func() {
			_, _ = client.Write(framed(wire.KeyProduce, 80<<10)[:n])
			_ = client.Close()
		}()
		// The error of a closed pipe may come from setting the deadline.
		if _, err := f.next(t.Context()); !errors.Is(err, errFrameCut) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %d bytes and the end: %v, want errFrameCut", n, err)
		}
		if got := f.budget.unused(); got != 64<<20 {
			t.Errorf("%d bytes of the budget are unused, want all", got)
		}
	}
}

// A reader that is told to end does, even when that comes between its checks.
func TestFrameEnded(t *testing.T) {
	f, _ := testReader(t, 64<<20)
	f.ended = func() error { return errShuttingDown }
	if _, err := f.next(t.Context()); !errors.Is(err, errShuttingDown) {
		t.Fatalf("next = %v, want errShuttingDown", err)
	}
}

// What a frame allocates does not depend on its size.
func TestFrameAllocations(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	counts := make(map[int]float64)
	for _, n := range []int{400, 2000, 100 << 10, 1 << 20} {
		f, _ := testReader(t, 64<<20)
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if f.c, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		p := framed(wire.KeyProduce, n)
		feed, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for range feed {
				_, _ = client.Write(p)
			}
		}()
		counts[n] = allocs.Least(func() {
			feed <- struct{}{}
			fr, err := f.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f.release(fr)
		})
		close(feed)
		<-done
		_ = client.Close()
		_ = f.c.Close()
	}
	for n, got := range counts {
		if got > counts[400] && !underRace {
			t.Errorf("%d bytes: %v allocations, and %v for 400 bytes", n, got, counts[400])
		}
	}
	t.Logf("allocations per frame: %v", counts)
}
