package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideKey marks the process that is the first of its own namespaces.
const insideKey = "WEIR_CHAOS_INSIDE"

// OnHostVerb is the first argument of our own program when it is to become the process of a host.
const OnHostVerb = "on-host"

// IsInside tells whether this process is the first of namespaces of its own.
func IsInside() bool { return os.Getenv(insideKey) != "" && os.Getpid() == 1 }

// CanSeparate returns nil when hosts can be separate here, and what is missing otherwise.
func CanSeparate() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	for _, p := range []string{"ip", "nft", "tc", "mount", "mkfs.ext4"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("the program %s is missing", p)
		}
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: insideFlags}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("namespaces cannot be made: %w", err)
	}
	return nil
}

const insideFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID

// RunInside runs this program again, with the same arguments, in namespaces of its own,
// and returns its exit code. Signals that would end us are passed on; ten seconds
// after the second one, or when we die, the kernel ends everything inside.
func RunInside(self string, args []string) (int, error) {
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), insideKey+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: insideFlags, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in namespaces of its own: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-signals:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			time.AfterFunc(40*time.Second, func() { _ = cmd.Process.Kill() }) // past its own cleaning up
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, err
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

// Settle prepares the namespaces that this process is the first of: mounts that do not
// leave them, but reach the hosts', and /proc and /run/netns of their own.
func Settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with the hosts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run/netns: %w", err)
	}
	return nil
}

// OnHost gives the process a boot id of its own and becomes the program of argv. It
// runs in the mount namespace that ip netns exec has made for it.
func OnHost(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: on-host BOOT-ID-FILE PROGRAM …")
	}
	if err := unix.Mount(args[0], "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("give the host a boot id: %w", err)
	}
	return syscall.Exec(args[1], args[1:], os.Environ())
}

const folderPrefix = "weir-chaos-"

// Folder makes a folder for a run, locked as long as the process lives, and removes
// those that dead runs have left. The closer removes it again. No parent stands for the
// system's folder of temporary files.
func Folder(parent string) (dir string, remove func() error, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent)
	if dir, err = os.MkdirTemp(parent, folderPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockFolder(dir, os.O_CREATE)
	if err != nil {
		return "", nil, err
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
}

func lockFolder(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), flag|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes folders whose owner is dead. One that cannot be removed stays: it is
// of no harm to this run.
func sweep(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), folderPrefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if lock, err := lockFolder(dir, 0); err == nil { // one without a lock is just being made
			_ = os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// Interruptible is a context that ends with the first signal that asks us to.
func Interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
