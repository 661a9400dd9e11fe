package controller

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/raft"
)

const (
	// roomKept of the file's room is for terms, votes and deletions, which are never refused:
	// a node must be able to follow, to vote, and to make room.
	roomKept = 2 << 20
	// roomSlack is what a write of entries may take besides them: the leaf that they are
	// added to is written anew with the few large entries in it, and so is the way to it.
	roomSlack = 4 << 20
	// roomStep is how much more is taken at once, so that it is not asked for with each write.
	roomStep = 4 << 20
)

// errNoAllocation says that the file system gives a file no blocks ahead.
var errNoAllocation = errors.New("the file system can not allocate ahead")

// entriesNeed bounds what a file may grow by when entries are stored: its leaves are half full
// at worst, and each entry may begin a page.
func entriesNeed(ls []*raft.Log) int64 {
	need := int64(roomSlack)
	for _, l := range ls {
		need += 2*int64(entryHead+len(l.Extensions)+len(l.Data)+entryTail) + 4096
	}
	return need
}

// room is the runway behind what a store uses of its file: blocks that the file system has
// given to the file already, so that nobody who fills the disk takes them. Where the file
// system gives none, what is free on the disk is looked at before each write instead.
//
// It belongs to whoever has the store's turn, but for short.
type room struct {
	file *os.File
	// end is up to where the file surely has its blocks.
	end int64
	// held is about how much of the disk the file had when it was opened: a full disk need not
	// have as much free again.
	held int64
	// allocate gives the file blocks in [from, to), or says errNoAllocation; free tells how
	// much the disk has left.
	allocate func(f *os.File, from, to int64) error
	free     func(f *os.File) (int64, error)
	// short tells that entries are refused for want of room.
	short atomic.Bool
	// changed is told when that changes.
	changed func(short bool)
}

func newRoom(f *os.File) *room {
	return &room{file: f, held: heldBytes(f), allocate: allocateBlocks, free: freeBytes, changed: func(bool) {}}
}

// take makes sure that the file, of which size is in use, can grow by need. It answers
// errNoRoom when it can not; a need of 0 is for what must go through, and is never refused.
func (r *room) take(size, need int64) error {
	err := r.reach(size + need + roomKept)
	if need == 0 {
		if errors.Is(err, errNoRoom) {
			err = nil
		}
		return err
	}
	if err == nil || errors.Is(err, errNoRoom) {
		if short := err != nil; r.short.Swap(short) != short {
			r.changed(short)
		}
	}
	return err
}

// reach extends the runway to at least to.
func (r *room) reach(to int64) error {
	if r.end >= to {
		return nil
	}
	free, err := r.free(r.file)
	if err != nil {
		return err
	}
	for _, aim := range []int64{to + roomStep, to} {
		if free < aim-max(r.end, r.held) {
			continue // it would take what there is and not be enough
		}
		switch err := r.allocate(r.file, r.end, aim); {
		case err == nil:
			r.end = aim
			return nil
		case errors.Is(err, errNoAllocation):
			return nil // there is room now
		case isNoSpace(err):
		default:
			return err
		}
	}
	return errNoRoom
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
