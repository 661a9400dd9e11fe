package hostile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// attacker is the address that inputs come from, so that the well-behaved client
// is another by its address.
const attacker = "127.0.0.2"

// attack is one run of an input.
type attack struct {
	*testing.T
	*stage
	logFrom  int // bytes of the node's log that lie before
	closings int // connections that the node has had reason to close

	mu    sync.Mutex
	conns []net.Conn
}

// closeAll ends the attacker's connections.
func (a *attack) closeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		_ = c.Close() // some are closed already
	}
	a.conns = nil
}

// checkClosings compares what the node counted and logged about connections that
// it closed with what the input gave it reason for. It counts and logs a little
// after it has closed.
func (a *attack) checkClosings(before usage) {
	a.Helper()
	a.stage.closings += a.closings
	eventually(a.T, func() error {
		if got := a.process.usage(a.T).failed - before.failed; got != a.closings {
			return fmt.Errorf("the node closed %d connections for what was sent, want %d:\n%s", got, a.closings, a.process.log()[a.logFrom:])
		}
		log := a.process.log()[a.logFrom:]
		if got := strings.Count(log, "client connection closed"); a.stage.closings <= loggedClosings && got != a.closings {
			return fmt.Errorf("%d lines about closed connections, want %d:\n%s", got, a.closings, log)
		}
		return nil
	})
}

// tryDial opens a connection from an address.
func (a *attack) tryDial(from string) (*conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", a.node.Client)
	if err != nil {
		return nil, fmt.Errorf("dial from %s: %w", from, err)
	}
	a.mu.Lock()
	a.conns = append(a.conns, c)
	a.mu.Unlock()
	return &conn{a: a, c: c}, nil
}

// dial opens a connection.
func (a *attack) dial() *conn {
	a.Helper()
	c, err := a.tryDial(attacker)
	if err != nil {
		a.Fatal(err)
	}
	return c
}

// flood runs op on some workers, again and again, until it was done at least so
// often and the well-behaved client has got on meanwhile. It returns how often.
func (a *attack) flood(workers, least int, op func(worker, n int) error) int {
	a.Helper()
	since := a.witness.mark()
	var done atomic.Int64
	var enough atomic.Bool
	failures := make(chan error, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() { // ends when enough is set, or with an error
			for n := 0; !enough.Load(); n++ {
				if err := op(worker, n); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	eventually(a.T, func() error {
		if len(failures) > 0 {
			return nil
		}
		if n := done.Load(); n < int64(least) {
			return fmt.Errorf("%d of %d done", n, least)
		}
		return a.witness.passed(since, a.records)
	})
	enough.Store(true)
	all.Wait()
	if len(failures) > 0 {
		a.Fatal(<-failures)
	}
	return int(done.Load())
}

// conn is the attacker's end of a connection. It belongs to one goroutine.
type conn struct {
	a    *attack
	c    net.Conn
	r    *bufio.Reader
	corr int32
}

// raw sends bytes as they are. The node may have closed the connection already.
func (c *conn) raw(p []byte) { _, _ = c.c.Write(p) }

// closed waits until the node closes the connection without an answer.
func (c *conn) closed() {
	c.a.Helper()
	c.a.closings++
	if n, err := c.drained(); err != nil || n > 0 {
		c.a.Fatalf("the node sent %d bytes and did not close the connection: %v", n, err)
	}
}

// send sends bytes, all of them.
func (c *conn) send(p []byte) error {
	_ = c.c.SetDeadline(time.Now().Add(patience))
	if _, err := c.c.Write(p); err != nil {
		return fmt.Errorf("send %d bytes: %w", len(p), err)
	}
	return nil
}

// drained reads until the node closes the connection.
func (c *conn) drained() (int64, error) {
	_ = c.c.SetReadDeadline(time.Now().Add(patience))
	n, err := io.Copy(io.Discard, c.c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	return n, nil // an end or a reset
}

// encode makes a request's frame.
func (c *conn) encode(r kmsg.Request, client string) []byte {
	c.corr++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(client)).AppendRequest(nil, r, c.corr)
}

// try sends a request and returns its answer.
func (c *conn) try(r kmsg.Request) (kmsg.Response, error) { return c.tryAs(r, "attacker") }

func (c *conn) tryAs(r kmsg.Request, client string) (kmsg.Response, error) {
	if err := c.send(c.encode(r, client)); err != nil {
		return nil, err
	}
	return c.receive(r, c.corr)
}

// ask sends a request and returns its answer.
func (c *conn) ask(r kmsg.Request) kmsg.Response {
	c.a.Helper()
	resp, err := c.try(r)
	if err != nil {
		c.a.Fatal(err)
	}
	return resp
}

// frame reads one answer's correlation id and what follows.
func (c *conn) frame() (corr int32, body []byte, err error) {
	if c.r == nil {
		c.r = bufio.NewReader(c.c)
	}
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, int32(binary.BigEndian.Uint32(head[:]))-4)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(head[4:])), body, nil
}

// receive reads the answer of one request.
func (c *conn) receive(r kmsg.Request, corr int32) (kmsg.Response, error) {
	name := kmsg.NameForKey(r.Key())
	got, body, err := c.frame()
	if err != nil {
		return nil, fmt.Errorf("receive the answer of %s: %w", name, err)
	}
	if got != corr {
		return nil, fmt.Errorf("the answer of %s has correlation id %d, want %d", name, got, corr)
	}
	resp := r.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 { // the header's tags, of which there are none
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", name, err)
	}
	return resp, nil
}

// lasting asks again, as clients do, while the answer is that something took too
// long or is not known yet.
func (a *attack) lasting(ask func() int16) int16 {
	a.Helper()
	var code int16
	eventually(a.T, func() error {
		code = ask()
		if slices.Contains([]int16{6, 7, 14, 15, 16, 41}, code) {
			return fmt.Errorf("the code is still %d", code)
		}
		return nil
	})
	return code
}

// code fails unless an error code is the one that must come.
func (a *attack) code(what string, got, want int16) {
	a.Helper()
	if got != want {
		a.Errorf("%s: code %d, want %d", what, got, want)
	}
}

// header is a request frame of a key and version, with a null client id, whose
// length is right; body follows the header's old part.
func header(key, version int16, body ...byte) []byte {
	p := binary.BigEndian.AppendUint16(make([]byte, 4, 16+len(body)), uint16(key))
	p = binary.BigEndian.AppendUint16(p, uint16(version))
	p = append(p, 0, 0, 0, 7, 0xff, 0xff)
	p = append(p, body...)
	binary.BigEndian.PutUint32(p, uint32(len(p)-4))
	return p
}

// apiVersions is the request that everything begins with.
func apiVersions() *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = 3, "attacker", "1.0"
	return r
}
