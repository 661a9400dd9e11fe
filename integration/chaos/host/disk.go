package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk is where a host keeps its files. A nil image is a plain folder.
type Disk struct {
	image string // file of the ext4 file system
	mount string
}

const (
	diskBytes = 768 << 20 // sparse: it costs what is written
	ballast   = ".ballast"
	// shutdownNow is EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: from here on
	// nothing reaches the disk, neither data nor journal.
	shutdownRequest = 0x8004587d
	shutdownNow     = 2
)

// newDisk makes an ext4 file system in a file of its own and mounts it.
func newDisk(image, mount string) (*Disk, error) {
	d := &Disk{image: image, mount: mount}
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskBytes), f.Close(), os.MkdirAll(mount, 0o755)); err != nil {
		return nil, err
	}
	if err := command([]string{"mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", image}, ""); err != nil {
		return nil, err
	}
	return d, d.attach()
}

func (d *Disk) attach() error { return command([]string{"mount", "-o", "loop", d.image, d.mount}, "") }

func (d *Disk) detach() error { return command([]string{"umount", d.mount}, "") }

// fillTries is how often Fill asks anew how much room there is.
const fillTries = 20

// Fill leaves about free bytes on the disk, by a file that nobody else knows.
func (d *Disk) Fill(free int64) error {
	f, err := os.Create(filepath.Join(d.mount, ballast))
	if err != nil {
		return err
	}
	defer f.Close()
	for range fillTries {
		var st unix.Statfs_t
		if err := unix.Statfs(d.mount, &st); err != nil {
			return fmt.Errorf("ask for the room on %s: %w", d.mount, err)
		}
		size := int64(st.Bavail)*st.Bsize - free
		if size <= 0 {
			return nil
		}
		info, statErr := f.Stat()
		if statErr != nil {
			return statErr
		}
		err = unix.Fallocate(int(f.Fd()), 0, info.Size(), size)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("fill %s with %d bytes: %w", d.mount, size, err)
		if !errors.Is(err, unix.ENOSPC) { // else the node has taken some of it meanwhile
			return err
		}
	}
	return err
}

// Relieve takes away what Fill has put there.
func (d *Disk) Relieve() error {
	err := os.Remove(filepath.Join(d.mount, ballast))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Fail cuts the disk off: every later call fails, and what was not synced is gone.
func (d *Disk) Fail() error {
	dir, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdownRequest, shutdownNow); err != nil {
		return fmt.Errorf("shut %s down: %w", d.mount, err)
	}
	return nil
}

// Return brings a failed disk back as a machine finds it after a power failure: the
// journal is replayed. No process may hold a file there.
func (d *Disk) Return() error {
	if err := d.detach(); err != nil {
		return err
	}
	return d.attach()
}
