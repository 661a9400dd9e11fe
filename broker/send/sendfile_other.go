//go:build !linux

package send

import (
	"net"
	"syscall"
)

// rawConn is nil: only on Linux are bytes sent from the file itself.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (s *sender) sendfile(r source) error { return s.copy(r) }

func (s *sender) sendSome(uintptr) bool { return true }
