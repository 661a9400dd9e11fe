package hostile

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func crowdInputs() []input {
	return []input{
		{number: 6, name: "10,000 connections that say nothing", memory: 96 << 20, run: silent},
		{number: 12, name: "10,000 requests of one correlation id, answers unread", run: unread},
		{number: 39, name: "connections closed in the middle of an answer", run: cutShort},
		{number: 39, name: "connections that do not take their answers", run: zeroWindow},
		{number: 39, name: "resets and half-closed connections", run: resets},
		{number: 40, name: "1,000 producers at line rate", memory: 192 << 20, run: lineRate},
	}
}

// silent takes all the connections that there are, and says nothing on any.
// Whoever comes then and says something is served all the same.
func silent(a *attack) string {
	crowd := a.size(1_000, 10_000)
	for range crowd {
		a.dial()
	}
	for i := range 20 {
		c, err := a.tryDial(fmt.Sprintf("127.0.0.%d", 3+i%2))
		if err == nil {
			_, err = c.try(apiVersions())
		}
		if err != nil {
			a.Fatalf("a newcomer: %v", err)
		}
	}
	return fmt.Sprintf("%d stay, but for those that make room for newcomers", crowd)
}

// unread sends requests without reading an answer, and reads all in the end.
func unread(a *attack) string {
	const n = 10_000
	c := a.dial()
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 7
	c.corr = 41
	frame := c.encode(r, "attacker")
	began := time.Now()
	go func() { // ends when all is sent, or with the connection
		for range n {
			if _, err := c.c.Write(frame); err != nil {
				return
			}
		}
	}()
	a.witness.getOn(a.T, a.records)
	for i := range n {
		_ = c.c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.receive(r, 42); err != nil {
			const writeTimeout = 30 * time.Second
			if time.Since(began) < writeTimeout {
				a.Fatalf("answer %d: %v", i, err)
			}
			a.closings++ // this machine is so slow that the node gave up first
			return fmt.Sprintf("closed after %d answers", i)
		}
	}
	return "answered, all in order, once they are read"
}

// fill puts some MiB into the prey, so that answers are large.
func (a *attack) fill(c *conn, mib int) {
	a.Helper()
	p := holding(0, record(make([]byte, 1_000_000)))
	for range mib {
		a.code("fill", a.produce(c, p), ok)
	}
}

// wholePrey asks for all of it.
func wholePrey() *kmsg.FetchRequest {
	r := fetchRequest(prey, 1)
	r.Topics[0].Partitions[0].PartitionMaxBytes = 50 << 20
	return r
}

// cutShort closes while the node sends from its files.
func cutShort(a *attack) string {
	a.fill(a.dial(), a.size(8, 50))
	n := a.flood(8, a.size(50, 2_000), func(worker, n int) error {
		c, err := a.tryDial(attacker)
		if err != nil {
			return err
		}
		if err := c.send(c.encode(wholePrey(), "attacker")); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c.c, int64(1000*(n+1))); err != nil {
			return fmt.Errorf("read the beginning of an answer: %w", err)
		}
		return c.c.Close()
	})
	return fmt.Sprintf("%d closed", n)
}

// zeroWindow leaves answers in the node's socket. In the full form the node ends
// the connections when its patience is over.
func zeroWindow(a *attack) string {
	crowd := a.size(50, 1_000)
	conns := make([]*conn, crowd)
	for i := range conns {
		c, err := a.tryDial(attacker)
		if err != nil {
			a.Fatal(err)
		}
		_ = c.c.(*net.TCPConn).SetReadBuffer(1)
		c.raw(c.encode(wholePrey(), "attacker"))
		conns[i] = c
	}
	if !a.full {
		a.witness.getOn(a.T, a.records)
		return fmt.Sprintf("%d left waiting", crowd)
	}
	a.awaitFailed(crowd)
	return fmt.Sprintf("%d closed by the node, after its 30 s", crowd)
}

// awaitFailed waits until the node has closed n more connections.
func (a *attack) awaitFailed(n int) {
	a.Helper()
	from := a.process.usage(a.T).failed
	eventually(a.T, func() error {
		if got := a.process.usage(a.T).failed - from; got < n {
			return fmt.Errorf("%d connections have failed, want %d", got, n)
		}
		return nil
	})
	a.closings += n
}

// resets ends connections with a reset, and with half a goodbye, which is a whole
// one to the node as it is to Kafka.
func resets(a *attack) string {
	n := a.flood(8, a.size(200, 10_000), func(worker, n int) error {
		c, err := a.tryDial(fmt.Sprintf("127.0.1.%d", 1+(worker+n)%200))
		if err != nil {
			return err
		}
		tcp := c.c.(*net.TCPConn)
		if n%2 == 0 {
			_ = tcp.SetLinger(0) // close with a reset
			c.raw(c.encode(apiVersions(), "attacker"))
			return tcp.Close()
		}
		c.raw(c.encode(apiVersions(), "attacker"))
		if err := tcp.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
			return err
		}
		if _, err := c.drained(); err != nil {
			return fmt.Errorf("after half a close: %w", err)
		}
		return tcp.Close()
	})
	return fmt.Sprintf("closed, %d of them", n)
}

// lineRate is too much of what is right: producers that wait for nothing.
func lineRate(a *attack) string {
	crowd := a.size(50, 1_000)
	frame := (&conn{}).encode(a.produceRequest(holding(0, record(make([]byte, 10_000)))), "attacker")
	conns := make([]*conn, crowd)
	for i := range conns {
		conns[i] = a.dial()
	}
	n := a.flood(crowd, a.size(2_000, 100_000), func(worker, n int) error {
		c := conns[worker]
		if err := c.send(frame); err != nil {
			return err
		}
		if n < 8 { // so many are in flight
			return nil
		}
		_ = c.c.SetReadDeadline(time.Now().Add(patience))
		if _, _, err := c.frame(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	})
	return fmt.Sprintf("%d batches of 10 kB taken", n)
}
