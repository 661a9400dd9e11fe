package controller

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// allocateBlocks gives a file blocks; its size stays.
func allocateBlocks(f *os.File, from, to int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM):
			return errNoAllocation
		case err != nil:
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// freeBytes is how much this process may still write on the file's disk.
func freeBytes(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// heldBytes is how much of the disk the file has, 0 when that can not be told.
func heldBytes(f *os.File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0 // then it is asked for anew
	}
	return st.Blocks * 512
}

// lockWithin takes the lock on a file that bbolt takes too, and waits for it for a while.
func lockWithin(f *os.File, wait time.Duration) error {
	until := time.Now().Add(wait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		case time.Now().After(until):
			return fmt.Errorf("lock %s: another process holds it", f.Name())
		}
		<-time.After(lockPause)
	}
}

// lockPause is how long a try to lock the file waits for the next.
const lockPause = 20 * time.Millisecond
