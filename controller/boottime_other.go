//go:build !linux

package controller

import "time"

// processStart is the origin of BootTime.
var processStart = time.Now()

// BootTime is the time since the process started, by the monotonic clock; on this system it
// does not count the time that the machine was suspended.
func BootTime() time.Duration { return time.Since(processStart) }
