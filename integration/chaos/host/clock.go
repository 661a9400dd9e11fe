package host

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Clock is the wall clock of one process. Time namespaces do not cover it, and a
// static program loads no library that could; but a Go program asks the vDSO, code
// that the kernel maps into every process and that a debugger may write to. There
// clock_gettime is led to a copy of ours, which adds a number to CLOCK_REALTIME and
// leaves all other clocks alone. The machine's clock is not touched.
type Clock struct {
	pid  int
	slot int64 // address of the seconds and nanoseconds that are added
}

// The routine: seconds and nanoseconds to add, then code that makes the system call,
// and for clock 0 adds them to what it has written.
var clockRoutine = []byte{
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // seconds, nanoseconds
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x2c, // jne out
	0x48, 0x8b, 0x0d, 0xde, 0xff, 0xff, 0xff, // mov rcx, [seconds]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0x48, 0x8b, 0x0d, 0xdc, 0xff, 0xff, 0xff, // mov rcx, [nanoseconds]
	0x48, 0x03, 0x4e, 0x08, // add rcx, [rsi+8]
	0x48, 0x81, 0xf9, 0x00, 0xca, 0x9a, 0x3b, // cmp rcx, 1000000000
	0x7c, 0x0a, // jl store
	0x48, 0x81, 0xe9, 0x00, 0xca, 0x9a, 0x3b, // sub rcx, 1000000000
	0x48, 0xff, 0x06, // inc qword [rsi]
	0x48, 0x89, 0x4e, 0x08, // store: mov [rsi+8], rcx
	0xc3, // out: ret
}

const clockCode = 16 // where the code begins

// CanMoveClocks returns nil when the clocks of our children can be moved here, and what
// stands against it otherwise. It tries on a child that is of no use else, and writes
// there what was there.
func CanMoveClocks() error {
	if runtime.GOARCH != "amd64" {
		return errors.New("clocks can be moved only on amd64")
	}
	child := exec.Command("cat")
	hold, err := child.StdinPipe() // it lives until this is closed
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start a child to try on: %w", err)
	}
	defer func() { _ = errors.Join(hold.Close(), child.Wait()) }() // nobody asks how it ended
	pid := child.Process.Pid
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid)); err != nil {
		return fmt.Errorf("see where a child is: %w", err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	start, size, err := vdso(pid)
	if err != nil {
		return err
	}
	image := make([]byte, size)
	if _, err := mem.ReadAt(image, start); err != nil {
		return fmt.Errorf("read the vDSO of a child: %w", err)
	}
	if _, err := clockEntry(image); err != nil {
		return err
	}
	if _, err := mem.WriteAt(image[size-1:], start+int64(size)-1); err != nil {
		return fmt.Errorf("write to the vDSO of a child: %w", err)
	}
	return nil
}

// Clock takes hold of the wall clock of the host's process, for as long as that lives.
func (h *Host) Clock() (*Clock, error) {
	pid := h.PID()
	if runtime.GOARCH != "amd64" || pid == 0 {
		return nil, errors.New("clocks can be moved only on amd64, and only of a process that runs")
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	start, size, err := vdso(pid)
	if err != nil {
		return nil, err
	}
	image := make([]byte, size)
	if _, err := mem.ReadAt(image, start); err != nil {
		return nil, fmt.Errorf("read the vDSO: %w", err)
	}
	entry, err := clockEntry(image)
	if err != nil {
		return nil, err
	}
	at := int64(size - len(clockRoutine)) // behind the ELF image the page is empty
	if image[entry] == 0xe9 {
		return &Clock{pid: pid, slot: start + at}, nil // ours from before
	}
	ours := bytes.Equal(image[at+clockCode:], clockRoutine[clockCode:]) // of a try that did not come to its end
	if !ours && len(bytes.Trim(image[at:], "\x00")) != 0 {
		return nil, errors.New("the vDSO has no room")
	}
	jump := make([]byte, 5)
	jump[0] = 0xe9
	binary.LittleEndian.PutUint32(jump[1:], uint32(int32(at+clockCode-entry-5)))
	if _, err := mem.WriteAt(clockRoutine, start+at); err != nil {
		return nil, fmt.Errorf("write to the vDSO: %w", err)
	}
	return &Clock{pid: pid, slot: start + at}, h.writeStopped(mem, jump, start+entry)
}

const (
	stopTries = 20                   // how often the process is stopped in search of a moment
	stopWait  = 5 * time.Millisecond // how long until it is looked at again
	stopLooks = 400                  // at one stop: on a busy machine threads take their time
)

// writeStopped writes code that a thread must not be executing just then.
func (h *Host) writeStopped(mem *os.File, code []byte, at int64) error {
	for range stopTries {
		if err := h.Pause(); err != nil {
			return err
		}
		where := threadsRun
		for look := 0; where == threadsRun && look < stopLooks; look++ {
			time.Sleep(stopWait)
			where = threads(h.PID(), at, at+int64(len(code)))
		}
		var err error
		if where == threadsElsewhere {
			_, err = mem.WriteAt(code, at)
		}
		if e := h.Resume(); err == nil {
			err = e
		}
		if err != nil || where == threadsElsewhere {
			return err
		}
	}
	return errors.New("a thread is always in the way")
}

// Where the threads of a process are.
type whereabouts int

const (
	threadsRun       whereabouts = iota // one has not stopped yet
	threadsWithin                       // one is between two addresses
	threadsElsewhere                    // none is
)

// threads tells where the threads of a process are that is being stopped.
func threads(pid int, from, to int64) whereabouts {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return threadsRun
	}
	for _, t := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, t.Name()))
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			return threadsRun
		}
		pc, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil {
			return threadsRun
		}
		if int64(pc) > from && int64(pc) < to {
			return threadsWithin
		}
	}
	return threadsElsewhere
}

// vdso finds where the vDSO of a process is.
func vdso(pid int) (start int64, size int, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			var end int64
			if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
				return 0, 0, fmt.Errorf("read the map %q: %w", line, err)
			}
			return start, int(end - start), nil
		}
	}
	return 0, 0, errors.New("the process has no vDSO")
}

func clockEntry(image []byte) (int64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the vDSO's symbols: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && int(s.Value)+5 < len(image) {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// Step makes the process's wall clock show the machine's plus d.
func (c *Clock) Step(d time.Duration) error {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the process has ended, and its clock with it
	}
	if err != nil {
		return err
	}
	defer mem.Close()
	sec := d / time.Second
	if d < 0 && d%time.Second != 0 {
		sec--
	}
	p := binary.LittleEndian.AppendUint64(nil, uint64(sec))
	p = binary.LittleEndian.AppendUint64(p, uint64(d-sec*time.Second))
	if _, err := mem.WriteAt(p, c.slot); err != nil && !errors.Is(err, syscall.EIO) {
		return fmt.Errorf("step the clock of process %d: %w", c.pid, err)
	}
	return nil
}
