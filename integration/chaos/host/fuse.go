package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel's FUSE protocol, as far as a process that keeps files needs it. All
// numbers are in the machine's order; fields are read at their offsets.

// Operations.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseMkdir       = 9
	fuseUnlink      = 10
	fuseRmdir       = 11
	fuseRename      = 12
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseFsync       = 20
	fuseFlush       = 25
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseFsyncdir    = 30
	fuseCreate      = 35
	fuseInterrupt   = 36
	fuseDestroy     = 38
	fuseBatchForget = 42
	fuseRename2     = 45
)

const (
	fuseHeadIn, fuseHeadOut = 40, 16
	fuseMinor               = 31
	fuseFlags               = 1<<0 | 1<<5 | 1<<22 // asynchronous reads, large writes, their size in pages
	setattrMode             = 1 << 0
	setattrSize             = 1 << 3
	setattrHandle           = 1 << 6
)

// call is one request.
type call struct {
	op     uint32
	unique uint64
	node   uint64
	body   []byte
}

func (c call) u32(at int) uint32 { return binary.NativeEndian.Uint32(c.body[at:]) }
func (c call) u64(at int) uint64 { return binary.NativeEndian.Uint64(c.body[at:]) }

// names are the strings that end a request, from a position on.
func (c call) names(at int) []string {
	var out []string
	for _, n := range bytes.Split(c.body[at:], []byte{0}) {
		out = append(out, string(n))
	}
	return out
}

// serve answers the kernel until the mount is gone. Every request has a goroutine, so
// that one that hangs holds up no other.
func (t *Taint) serve() {
	defer t.serving.Done()
	for {
		buf := make([]byte, fuseMaxWrite+4096)
		n, err := t.dev.Read(buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue // the request was taken back
		}
		if err != nil || n < fuseHeadIn {
			return
		}
		c := call{op: binary.NativeEndian.Uint32(buf[4:]), unique: binary.NativeEndian.Uint64(buf[8:]), node: binary.NativeEndian.Uint64(buf[16:]), body: buf[fuseHeadIn:n]}
		switch c.op {
		case fuseForget, fuseBatchForget, fuseInterrupt:
			continue // nothing is answered; nodes are few
		}
		t.serving.Go(func() { t.answer(c) })
	}
}

func (t *Taint) answer(c call) {
	body, err := t.handle(c)
	code := int32(0)
	if err != nil {
		body = nil
		errno := syscall.EIO
		errors.As(err, &errno)
		code = -int32(errno)
	}
	out := binary.NativeEndian.AppendUint32(nil, uint32(fuseHeadOut+len(body)))
	out = binary.NativeEndian.AppendUint32(out, uint32(code))
	out = binary.NativeEndian.AppendUint64(out, c.unique)
	_, _ = t.dev.Write(append(out, body...)) // a request that was taken back takes no answer
}

// handle carries a request out and returns the answer's body.
func (t *Taint) handle(c call) ([]byte, error) {
	switch c.op {
	case fuseInit:
		return initAnswer(), nil
	case fuseLookup:
		return t.lookup(c.node, c.names(0)[0])
	case fuseGetattr:
		st, err := t.stat(c.node)
		return attrAnswer(st), err
	case fuseSetattr:
		return t.setattr(c)
	case fuseStatfs:
		return t.statfs()
	case fuseOpen:
		return t.open(c)
	case fuseCreate:
		return t.create(c)
	case fuseRead:
		return t.read(c)
	case fuseWrite:
		return t.write(c)
	case fuseFsync, fuseFsyncdir:
		return nil, t.sync(c)
	case fuseRelease, fuseReleasedir:
		t.release(c.u64(0), c.node)
		return nil, nil
	case fuseFlush, fuseDestroy:
		return nil, nil
	case fuseMkdir, fuseUnlink, fuseRmdir, fuseRename, fuseRename2:
		return t.change(c)
	case fuseOpendir:
		return t.opendir(c)
	case fuseReaddir:
		return t.readdir(c)
	}
	return nil, unix.ENOSYS
}

func initAnswer() []byte {
	out := make([]byte, 64)
	binary.NativeEndian.PutUint32(out, 7)
	binary.NativeEndian.PutUint32(out[4:], fuseMinor)
	binary.NativeEndian.PutUint32(out[8:], fuseMaxWrite)
	binary.NativeEndian.PutUint32(out[12:], fuseFlags)
	binary.NativeEndian.PutUint16(out[16:], 64)
	binary.NativeEndian.PutUint16(out[18:], 48)
	binary.NativeEndian.PutUint32(out[20:], fuseMaxWrite)
	binary.NativeEndian.PutUint32(out[24:], 1)
	binary.NativeEndian.PutUint16(out[28:], fuseMaxWrite/4096)
	return out
}

func appendAttr(b []byte, st unix.Stat_t) []byte {
	for _, v := range []uint64{st.Ino, uint64(st.Size), uint64(st.Blocks), uint64(st.Atim.Sec), uint64(st.Mtim.Sec), uint64(st.Ctim.Sec)} {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	for _, v := range []uint32{uint32(st.Atim.Nsec), uint32(st.Mtim.Nsec), uint32(st.Ctim.Nsec), st.Mode, uint32(st.Nlink), st.Uid, st.Gid, 0, uint32(st.Blksize), 0} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

// attrAnswer is not valid for any time: the kernel asks again.
func attrAnswer(st unix.Stat_t) []byte { return appendAttr(make([]byte, 16), st) }

func (t *Taint) lookup(parent uint64, name string) ([]byte, error) {
	path, err := t.child(parent, name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(t.real(path), &st); err != nil {
		return nil, err
	}
	out := binary.NativeEndian.AppendUint64(nil, t.id(path))
	return appendAttr(append(out, make([]byte, 32)...), st), nil
}

func (t *Taint) setattr(c call) ([]byte, error) {
	valid := c.u32(0)
	path, err := t.path(c.node)
	if valid&setattrSize != 0 {
		var f *os.File
		if valid&setattrHandle != 0 {
			f, path, err = t.file(c.u64(8), c.node)
		}
		if err == nil {
			err = t.ask("write", path)
		}
		switch {
		case err != nil:
		case f != nil:
			err = f.Truncate(int64(c.u64(16)))
		default:
			err = os.Truncate(t.real(path), int64(c.u64(16)))
		}
	}
	if err == nil && valid&setattrMode != 0 {
		err = unix.Chmod(t.real(path), c.u32(68)&0o7777)
	}
	if err != nil {
		return nil, err
	}
	st, err := t.stat(c.node)
	return attrAnswer(st), err
}

func (t *Taint) statfs() ([]byte, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(t.below, &st); err != nil {
		return nil, err
	}
	var out []byte
	for _, v := range []uint64{st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree} {
		out = binary.NativeEndian.AppendUint64(out, v)
	}
	for _, v := range []uint32{uint32(st.Bsize), uint32(st.Namelen), uint32(st.Frsize)} {
		out = binary.NativeEndian.AppendUint32(out, v)
	}
	return append(out, make([]byte, 28)...), nil
}

// openFlags are those that concern the file below: the kernel has seen to the others.
func openFlags(flags uint32) int { return int(flags) & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) }

func openAnswer(handle uint64) []byte {
	return append(binary.NativeEndian.AppendUint64(nil, handle), make([]byte, 8)...)
}

func (t *Taint) open(c call) ([]byte, error) {
	path, err := t.path(c.node)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(t.real(path), openFlags(c.u32(0)), 0)
	if err != nil {
		return nil, err
	}
	return openAnswer(t.keep(c.node, f)), nil
}

func (t *Taint) create(c call) ([]byte, error) {
	name := c.names(16)[0]
	path, err := t.child(c.node, name)
	if err == nil {
		err = t.ask("create", path)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(t.real(path), openFlags(c.u32(0))|os.O_CREATE|int(c.u32(0))&os.O_EXCL, os.FileMode(c.u32(4)&0o777))
	if err != nil {
		return nil, err
	}
	entry, err := t.lookup(c.node, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return append(entry, openAnswer(t.keep(binary.NativeEndian.Uint64(entry), f))...), nil
}

func (t *Taint) read(c call) ([]byte, error) {
	f, path, err := t.file(c.u64(0), c.node)
	if err == nil {
		err = t.ask("read", path)
	}
	if err != nil {
		return nil, err
	}
	p := make([]byte, c.u32(16))
	n, err := f.ReadAt(p, int64(c.u64(8)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p[:n], err
}

func (t *Taint) write(c call) ([]byte, error) {
	f, path, err := t.file(c.u64(0), c.node)
	if err == nil {
		err = t.ask("write", path)
	}
	if err != nil {
		return nil, err
	}
	n, err := f.WriteAt(c.body[40:40+c.u32(16)], int64(c.u64(8)))
	return binary.NativeEndian.AppendUint64(nil, uint64(n)), err
}

func (t *Taint) sync(c call) error {
	f, path, err := t.file(c.u64(0), c.node)
	if err == nil {
		err = t.ask("sync", path)
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// change makes, removes and moves names.
func (t *Taint) change(c call) ([]byte, error) {
	at := map[uint32]int{fuseMkdir: 8, fuseRename: 8, fuseRename2: 16}[c.op]
	names := c.names(at)
	path, err := t.child(c.node, names[0])
	if err != nil {
		return nil, err
	}
	switch c.op {
	case fuseMkdir:
		err := t.ask("create", path)
		if err == nil {
			err = os.Mkdir(t.real(path), os.FileMode(c.u32(0)&0o777))
		}
		if err != nil {
			return nil, err
		}
		return t.lookup(c.node, names[0])
	case fuseRename, fuseRename2:
		to, err := t.child(c.u64(0), names[1])
		if err == nil {
			err = t.ask("rename", path)
		}
		if err == nil {
			err = os.Rename(t.real(path), t.real(to))
		}
		if err == nil {
			t.moved(path, to)
		}
		return nil, err
	}
	err = t.ask("remove", path)
	if err == nil && c.op == fuseUnlink {
		err = unix.Unlink(t.real(path))
	} else if err == nil {
		err = unix.Rmdir(t.real(path))
	}
	if err == nil {
		t.forget(path)
	}
	return nil, err
}

func (t *Taint) opendir(c call) ([]byte, error) {
	path, err := t.path(c.node)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(t.real(path))
	if err != nil {
		return nil, err
	}
	return openAnswer(t.keep(c.node, f)), nil
}

// readdir lists a folder from an entry's number on, as far as the answer has room.
func (t *Taint) readdir(c call) ([]byte, error) {
	path, err := t.path(c.node)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(t.real(path))
	if err != nil {
		return nil, err
	}
	var out []byte
	for i := int(c.u64(8)); i < len(entries); i++ {
		name := entries[i].Name()
		size := (24 + len(name) + 7) / 8 * 8
		if len(out)+size > int(c.u32(16)) {
			break
		}
		kind := uint32(unix.DT_REG)
		if entries[i].IsDir() {
			kind = unix.DT_DIR
		}
		e := binary.NativeEndian.AppendUint64(nil, uint64(i)+2) // any number that is not 0
		e = binary.NativeEndian.AppendUint64(e, uint64(i)+1)
		e = binary.NativeEndian.AppendUint32(e, uint32(len(name)))
		e = binary.NativeEndian.AppendUint32(e, kind)
		e = append(e, name...)
		out = append(out, append(e, make([]byte, size-len(e))...)...)
	}
	return out, nil
}
