// Package vfs is the seam between storage and the operating system's files.
//
// Four implementations share one interface:
//
//   - OS is the real file system.
//   - Mem keeps everything in memory and can be crashed: it remembers what was
//     synced and what was not, and CrashClone returns the file system as a
//     machine might find it after the power failed, with unsynced writes lost,
//     cut or filled with zeros and unsynced names gone. ProcessClone returns it
//     as a new process finds it after the old one was killed: the kernel kept
//     everything.
//   - Faulty wraps another FS and asks a hook before every call, so that a test
//     can refuse, cut or delay any of them.
//   - Watch wraps another FS and knows which calls have not returned, so that its
//     owner can tell a disk that hangs.
//
// # Rules for users
//
// A file is durable when its content was synced with File.Sync and its name
// with SyncDir on the folder that holds it; neither implies the other. A rename
// is atomic: after a crash either the old or the new state is found.
// File.Sync is fdatasync where the system has it: it covers the content and the
// size, not the times. An error of Sync must not be answered by another Sync:
// the kernel may already have dropped the pages.
//
// All methods may be called from many goroutines at once. A File's ReadAt and
// WriteAt do not share a position; Write appends at the end of the file and has
// one caller at a time.
//
// Package vfs imports nothing of ours.
package vfs
