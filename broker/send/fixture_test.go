package send

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// pattern is n bytes that differ at every place that could be mistaken for another.
func pattern(n int) []byte {
	p := make([]byte, n)
	x := uint64(n) + 0x9e3779b97f4a7c15
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x)
	}
	return p
}

func onDisk(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// ranged is a source over a file that counts what is done with it.
type ranged struct {
	f    *os.File
	pos  int64
	n    int
	gate chan struct{} // places for holders; nil: no gate

	onlyCopy bool
	holdErr  error
	readErr  error

	held     atomic.Bool
	holds    atomic.Int32
	released atomic.Int32
}

func (r *ranged) Len() int { return r.n }
func (r *ranged) Release() { r.released.Add(1) }

func (r *ranged) ReadAt(p []byte, off int) (int, error) {
	if r.readErr != nil {
		return 0, r.readErr
	}
	return r.f.ReadAt(p, r.pos+int64(off))
}

func (r *ranged) hold() (file, error) {
	if r.holdErr != nil {
		return file{}, r.holdErr
	}
	if r.gate != nil {
		r.gate <- struct{}{}
	}
	if r.held.Swap(true) {
		panic("held twice at once")
	}
	r.holds.Add(1)
	return file{fd: int(r.f.Fd()), pos: r.pos, onlyCopy: r.onlyCopy}, nil
}

func (r *ranged) letGo() {
	if !r.held.Swap(false) {
		panic("let go without a hold")
	}
	if r.gate != nil {
		<-r.gate
	}
}

// checkDone fails unless each range was released once and none is held.
func checkDone(t testing.TB, rs ...*ranged) {
	t.Helper()
	for i, r := range rs {
		if n := r.released.Load(); n != 1 || r.held.Load() {
			t.Errorf("range %d: released %d times, held %v", i, n, r.held.Load())
		}
	}
}

// respond is Response with stand-ins for ranges.
func respond(c net.Conn, head []byte, holes []Hole, stall time.Duration, rs ...*ranged) error {
	s := senders.Get().(*sender)
	defer s.recycle()
	for _, r := range rs {
		s.sources = append(s.sources, r)
	}
	defer s.release()
	return s.respond(c, head, holes, stall)
}

// conns are both ends of a connection of one kind.
type conns struct{ server, client net.Conn }

func (c conns) close() {
	c.server.Close()
	c.client.Close()
}

// loopback is a TCP connection; buffers of 0 are the system's.
func loopback(t testing.TB, bufferBytes int) conns {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := conns{server: server, client: client}
	t.Cleanup(c.close)
	if bufferBytes > 0 {
		if err := server.(*net.TCPConn).SetWriteBuffer(bufferBytes); err != nil {
			t.Fatal(err)
		}
		if err := client.(*net.TCPConn).SetReadBuffer(bufferBytes); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func piped(t testing.TB) conns {
	server, client := net.Pipe()
	c := conns{server: server, client: client}
	t.Cleanup(c.close)
	return c
}

func secured(t testing.TB) conns {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	under := loopback(t, 0)
	certs := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	c := conns{
		server: tls.Server(under.server, &tls.Config{Certificates: certs}),
		client: tls.Client(under.client, &tls.Config{InsecureSkipVerify: true}),
	}
	return c
}

// kinds are the connections a response can go to.
var kinds = []struct {
	name string
	dial func(testing.TB) conns
}{
	{"tcp", func(t testing.TB) conns { return loopback(t, 0) }},
	{"tls", secured},
	{"pipe", piped},
}

// received reads n bytes in the background.
func received(c net.Conn, n int) <-chan []byte {
	out := make(chan []byte, 1)
	go func() {
		p := make([]byte, n)
		k, _ := io.ReadFull(c, p)
		out <- p[:k]
	}()
	return out
}

// differ is where two slices part, for messages.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func checkBytes(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d; they part at %d", len(got), len(want), differ(got, want))
	}
}
