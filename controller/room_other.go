//go:build !linux

package controller

import (
	"math"
	"os"
	"time"
)

// allocateBlocks gives no file blocks ahead here.
func allocateBlocks(*os.File, int64, int64) error { return errNoAllocation }

// freeBytes is not known here: a full disk ends the node.
func freeBytes(*os.File) (int64, error) { return math.MaxInt64, nil }

// heldBytes is not known here.
func heldBytes(*os.File) int64 { return 0 }

// lockWithin leaves the lock to bbolt here.
func lockWithin(*os.File, time.Duration) error { return nil }
