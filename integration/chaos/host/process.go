package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Host is one machine of the cluster with at most one weir process.
type Host struct {
	ID   int
	Dir  string // all that is the host's: log, boot id, disk
	Disk *Disk  // nil where the host's files are in a plain folder
	// Front is the proxy that clients reach the host by.
	Front *Proxy

	cluster             *Cluster
	listen, peer, admin string
	taint               *Taint // nil until the host's folder is tainted

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended and been waited for
	paused bool
	lost   bool // it may not run again
}

// Data is the node's data folder.
func (h *Host) Data() string { return filepath.Join(h.Dir, "disk", "data") }

// Log is the file that the node's output goes to.
func (h *Host) Log() string { return filepath.Join(h.Dir, "node.log") }

func (h *Host) bootID() string { return filepath.Join(h.Dir, "boot_id") }

// NewBoot gives the host another boot id, as a restart of its kernel does.
func (h *Host) NewBoot() error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails; the id only has to differ
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return os.WriteFile(h.bootID(), []byte(text), 0o444)
}

// Start starts the host's process.
func (h *Host) Start() error {
	data := h.Data()
	if h.taint != nil {
		data = filepath.Join(h.taint.mount, "data")
	}
	argv := []string{h.cluster.bin, "start", "--data", data, "--listen", h.listen, "--peer", h.peer, "--admin", h.admin,
		"--rack", fmt.Sprintf("rack-%d", h.ID), "--advertise", h.Front.address, "--join", strings.Join(h.cluster.join, ",")}
	if h != h.cluster.spare {
		argv = append(argv, "--node-id", fmt.Sprint(h.ID))
	}
	for _, s := range h.cluster.settings {
		argv = append(argv, "-c", s)
	}
	if h.cluster.net.Separate() {
		argv = h.cluster.net.Command(h.ID, append([]string{h.cluster.self, OnHostVerb, h.bootID()}, argv...))
	}
	log, err := os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd != nil || h.lost {
		return fmt.Errorf("node %d is running, or lost", h.ID)
	}
	if err := h.cluster.net.Up(h.ID); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", h.ID, err)
	}
	h.cmd, h.done, h.paused = cmd, make(chan struct{}), false
	go h.reap(cmd, h.done)
	return nil
}

// reap waits for the process; it ends with it.
func (h *Host) reap(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	h.Note("the process ended: %v", err)
	h.cluster.net.Down(h.ID)
	h.mu.Lock()
	h.cmd = nil
	h.mu.Unlock()
	close(done)
}

// Note writes a line of ours into the node's log, to be read beside its own.
func (h *Host) Note(format string, args ...any) {
	f, err := os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return // the log is there to be read by people; the run goes on without
	}
	defer f.Close()
	fmt.Fprintf(f, "%s [CHAOS] "+format+"\n", append([]any{time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}, args...)...)
}

// PID returns the process id, or 0 when the node does not run.
func (h *Host) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd == nil {
		return 0
	}
	return h.cmd.Process.Pid
}

// Lost tells that the host may not run again: it has lost what made it a member.
func (h *Host) Lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// Abandon marks a host that does not run as lost.
func (h *Host) Abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
}

// How long a node may take to end. The limits are for nodes that hang, and not for
// machines that are busy with something else.
const (
	killPatience = 2 * time.Minute
	stopPatience = 4 * time.Minute
)

// Kill sends SIGKILL and waits for the end of the process.
func (h *Host) Kill() error { return h.end(syscall.SIGKILL, killPatience) }

// Stop sends SIGTERM and waits; a node that does not end is an error.
func (h *Host) Stop() error { return h.end(syscall.SIGTERM, stopPatience) }

func (h *Host) end(s syscall.Signal, patience time.Duration) error {
	h.mu.Lock()
	cmd, done := h.cmd, h.done
	h.mu.Unlock()
	if cmd == nil {
		return nil
	}
	h.Note("%v", s)
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) { // one that ends of its own is waited for
		return fmt.Errorf("signal node %d: %w", h.ID, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("node %d did not end within %s of %v", h.ID, patience, s)
	}
}

// Pause stops the process as SIGSTOP does; Resume lets it go on.
func (h *Host) Pause() error { return h.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (h *Host) Resume() error { return h.signal(syscall.SIGCONT) }

func (h *Host) signal(s syscall.Signal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd == nil {
		return nil
	}
	h.paused = s == syscall.SIGSTOP
	if err := h.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal node %d: %w", h.ID, err)
	}
	return nil
}

// PowerCut takes the power from the host: what its disk has not been told to keep is
// gone, and its kernel starts anew. The process does not run afterwards.
func (h *Host) PowerCut() error { return Blackout([]*Host{h}) }

// Blackout takes the power from several hosts at the same moment.
func Blackout(hosts []*Host) error {
	for _, h := range hosts {
		if h.Disk == nil {
			return fmt.Errorf("host %d has no disk of its own", h.ID)
		}
	}
	failed := make([]error, len(hosts))
	var dark sync.WaitGroup
	for i, h := range hosts {
		dark.Go(func() { failed[i] = h.Disk.Fail() })
	}
	dark.Wait()
	for i, h := range hosts {
		failed[i] = errors.Join(failed[i], h.Kill())
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for i, h := range hosts {
		h.Note("power cut")
		failed[i] = errors.Join(h.Disk.Return(), h.NewBoot())
	}
	return errors.Join(failed...)
}

// Panicked returns the first line of the node's log that shows a crash of the program, or "".
func (h *Host) Panicked() (string, error) {
	text, err := os.ReadFile(h.Log())
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "BUG:") || strings.Contains(line, "SIGSEGV") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil
}
