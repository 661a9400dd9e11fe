package main

import "syscall"

// childAttributes makes the kernel end a demo node when the demo dies, however it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
