package controller

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time since the machine started, counting the time it was suspended: a
// process that slept with its machine must not believe that its session is young.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: the kernel has no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
