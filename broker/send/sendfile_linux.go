package send

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendfileBytes bounds one call, and with it how long a descriptor and a place
// at the gate are held when the file has to come from the disk.
const sendfileBytes = 1 << 20

// rawConn is the way to a plain TCP connection's descriptor, else nil.
func rawConn(c net.Conn) syscall.RawConn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil // closed: the copy will find out
	}
	return raw
}

// sendfile sends the range from its file. The buffer is empty.
func (s *sender) sendfile(r source) error {
	s.current, s.sent, s.err = r, 0, nil
	err := s.raw.Write(s.step)
	if s.err != nil {
		err = s.err
	}
	if errors.Is(err, errOnlyCopy) {
		return s.copy(r)
	}
	if err != nil {
		return fmt.Errorf("send %d bytes from a segment, %d of them sent: %w", r.Len(), s.sent, err)
	}
	return nil
}

// errOnlyCopy says that the file has no descriptor, or none that sendfile takes.
// Nothing was sent.
var errOnlyCopy = errors.New("the file cannot be sent from")

// sendSome sends until the range has ended, successfully or not, or until the
// socket is full: then it answers false and is called again when there is room.
func (s *sender) sendSome(socket uintptr) bool {
	for n := s.current.Len(); s.sent < n; {
		moved, err := s.sendOnce(int(socket), min(n-s.sent, sendfileBytes))
		s.sent += moved
		switch {
		case err == nil && moved == 0:
			err = ErrShortFile
		case err == nil:
			err = s.progressed()
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		}
		if err != nil {
			s.err = err
			return true
		}
	}
	return true
}

// sendOnce is one call of sendfile at an explicit offset, which leaves the
// position of the shared file alone.
func (s *sender) sendOnce(socket, n int) (int, error) {
	f, err := s.current.hold()
	if err != nil {
		return 0, err
	}
	defer s.current.letGo()
	if f.onlyCopy {
		return 0, errOnlyCopy
	}
	pos := f.pos + int64(s.sent)
	moved, err := unix.Sendfile(socket, f.fd, &pos, n)
	if s.sent == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)) {
		return 0, errOnlyCopy // a file system that cannot
	}
	return max(moved, 0), err
}
