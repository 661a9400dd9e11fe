package controller

import (
	"bufio"
	"net"
	"sync"
	"testing"
)

// writesConn counts writes, of one goroutine.
type writesConn struct {
	net.Conn
	writes int
}

func (c *writesConn) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}

// TestLinkWritesTogether: frames that wait at the same time are one write, up to a size, and
// arrive whole and in order.
func TestLinkWritesTogether(t *testing.T) {
	here, there := net.Pipe()
	c := &writesConn{Conn: here}
	l := newLink(c)
	const small, large = 5, 2
	for i := range small {
		if !l.send(t.Context(), encodeFrame(uint64(i), uint8(statusOK), &text{"small"})) {
			t.Fatal("not queued")
		}
	}
	for i := range large {
		frame := encodeFrame(uint64(small+i), uint8(statusOK), &proposeRequest{entry: make([]byte, gatheredBytes)})
		if !l.trySend(frame) {
			t.Fatal("not queued")
		}
	}
	var writing sync.WaitGroup
	writing.Go(l.write)
	r := bufio.NewReader(there)
	for i := range small + large {
		id, _, body, err := readFrame(r)
		if err != nil || id != uint64(i) {
			t.Fatalf("frame %d arrives as %d: %v", i, id, err)
		}
		if i >= small && len(body) < gatheredBytes {
			t.Errorf("frame %d has %d bytes", i, len(body))
		}
	}
	l.close()
	_ = there.Close()
	writing.Wait()
	if n := c.writes; n != 2 {
		t.Errorf("%d writes, want the small frames with a large one, and the last", n)
	}
	for range frameQueue {
		l.trySend(nil)
	}
	if l.trySend(nil) {
		t.Error("a full queue took a frame")
	}
}
