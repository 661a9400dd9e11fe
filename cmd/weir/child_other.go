//go:build !linux

package main

import "syscall"

// childAttributes has nothing to offer here: a demo that is killed leaves its nodes behind.
func childAttributes() *syscall.SysProcAttr { return nil }
