package host

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// clockKey makes the test binary print its wall clock until it is killed.
const clockKey = "WEIR_CHAOS_TEST_CLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(clockKey) != "" {
		for range time.Tick(time.Millisecond) {
			fmt.Fprintln(os.Stdout, time.Now().UnixNano())
		}
	}
	goleak.VerifyTestMain(m)
}

// TestClock steps the wall clock of another process to and fro.
func TestClock(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the routine is written for amd64")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clockKey+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Scan() // it runs
	h := &Host{cmd: cmd}
	c, err := h.Clock()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []time.Duration{time.Hour, -3*time.Hour + 200*time.Millisecond, 0, 20 * time.Minute} {
		if err := c.Step(step); err != nil {
			t.Fatal(err)
		}
		for {
			if !lines.Scan() {
				t.Fatalf("the process ended at a step of %s: %v", step, lines.Err())
			}
			var ns int64
			if _, err := fmt.Sscan(lines.Text(), &ns); err != nil {
				t.Fatal(err)
			}
			if off := time.Until(time.Unix(0, ns)) - step; off.Abs() < 5*time.Minute {
				break
			}
		}
	}
	if again, err := h.Clock(); err != nil || again.slot != c.slot {
		t.Errorf("taken hold of again: %+v, %v, want %+v", again, err, c)
	}
}

// echoServer answers each connection with what it sends, and counts what it got.
func echoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func roundTrip(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	answer(t, c, text)
}

func answer(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// silent checks that nothing comes; it waits no longer than it must to see a gate at work.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * holdTick))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatal("a byte came through")
	}
	_ = c.SetReadDeadline(time.Time{})
}

func TestProxyHoldsAndSwallows(t *testing.T) {
	p, err := newProxy(1, "127.0.0.1:0", echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.shut)
	c := dial(t, p.address)
	roundTrip(t, c, "before")
	for _, l := range []Link{{Clients, 1}, {1, Clients}} {
		p.setCuts(Cuts{l: Lost})
		if _, err := c.Write([]byte("held")); err != nil {
			t.Fatal(err)
		}
		silent(t, c)
		p.setCuts(Cuts{})
		answer(t, c, "held")
	}
	p.Delay(20 * time.Millisecond)
	roundTrip(t, c, "late")
	p.Delay(0)
	p.Swallow(true)
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatal("a reply came that was to be swallowed")
	}
	p.Swallow(false)
	roundTrip(t, dial(t, p.address), "after")
}

func TestProxyOfADeadNodeResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	p, err := newProxy(1, "127.0.0.1:0", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.shut)
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		return // reset before we knew that it was open
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("nobody answered, and it was no error")
	}
}

// preface is what node from says first on a peer connection.
func preface(kind byte, from uint32) string {
	body := append([]byte{2, 'c', 'l'}, binary.BigEndian.AppendUint32(nil, from)...)
	body = append(body, make([]byte, 16)...)
	head := binary.BigEndian.AppendUint16([]byte{'W', 'E', 'I', 'R', 1, kind}, uint16(len(body)))
	return string(append(head, body...))
}

func TestPeerProxyKnowsWhoDials(t *testing.T) {
	p, err := newPeerProxy(1, "127.0.0.1:0", echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.shut)
	two, three := dial(t, p.address), dial(t, p.address)
	roundTrip(t, two, preface(2, 2))
	roundTrip(t, three, preface(4, 3))
	p.setCuts(Cuts{{2, 1}: Lost})
	roundTrip(t, three, "not concerned")
	if _, err := two.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	silent(t, two)
	p.setCuts(Cuts{})
	answer(t, two, "held")
	p.setHeld("feed")
	roundTrip(t, two, "another kind")
	if _, err := three.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	silent(t, three)
	p.setHeld("")
	answer(t, three, "held")
	p.setRate(3, 1<<20)
	text := string(bytes.Repeat([]byte("x"), 100<<10))
	roundTrip(t, three, text)
	p.shut()
	if _, err := net.Dial("tcp", p.address); err == nil {
		t.Error("a dial to a shut proxy was not refused")
	}
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, dial(t, p.address), preface(2, 2))
}

func TestFolderSweepsWhatTheDeadHaveLeft(t *testing.T) {
	parent := t.TempDir()
	dead, removeDead, err := Folder(parent)
	if err != nil {
		t.Fatal(err)
	}
	alive, removeAlive, err := Folder(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err != nil {
		t.Error("the folder of a living run was swept")
	}
	// The first run dies: its lock goes, its files stay.
	if err := removeDead(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"", ".lock"} {
		if err := writeAny(filepath.Join(dead, f), f != ""); err != nil {
			t.Fatal(err)
		}
	}
	_, remove, err := Folder(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead run is still there: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Error("the folder of a living run was swept")
	}
	for _, r := range []func() error{remove, removeAlive} {
		if err := r(); err != nil {
			t.Error(err)
		}
	}
}

func writeAny(path string, file bool) error {
	if file {
		return os.WriteFile(path, nil, 0o600)
	}
	return os.MkdirAll(path, 0o755)
}
