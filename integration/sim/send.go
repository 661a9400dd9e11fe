package sim

import (
	"errors"
	"hash/crc32"
	"time"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/wire/batch"
)

// records reads what a Send asks for and sends it as one FEED. It returns false
// when the bytes are read later, and the writer goes on then.
func (c *conn) records(s feed.Send) bool {
	r := c.to.replica(s.TP)
	if r == nil {
		c.failedSend(s, errStaleAttempt)
		return true
	}
	if c.w.chance(150) { // other things happen before the read
		c.sending = true
		c.to.do(c.w.between(0, 2*time.Millisecond), laneData, func() {
			c.sending = false
			if c.serving && c.readRecords(r, s) {
				c.pump()
			}
		})
		return false
	}
	return c.readRecords(r, s)
}

func (c *conn) readRecords(r *replica, s feed.Send) bool {
	rg, err := r.readFeed(s.Epoch, s.From, s.End, s.MaxBytes)
	if err != nil {
		c.to.trouble(err)
		c.failedSend(s, err)
		return true
	}
	if rg.Len() > 0 && rg.First() > s.From {
		rg.Release()
		c.failedSend(s, errors.New("records begin elsewhere"))
		return true
	}
	head, ok := c.feeder.Sent(s, rg.End(), rg.Len())
	if !ok {
		rg.Release()
		return true
	}
	want := r.expect(rg)
	if c.w.chance(150) { // the socket takes the bytes later
		c.sending = true
		c.to.do(c.w.between(0, 20*time.Millisecond), laneData, func() {
			c.sending = false
			if c.finishSend(r, head, rg, want) {
				c.pump()
			}
		})
		return false
	}
	return c.finishSend(r, head, rg, want)
}

// finishSend takes the bytes from the file. It returns false when the connection is over.
func (c *conn) finishSend(r *replica, head feed.Feed, rg storage.Range, want uint32) bool {
	defer rg.Release()
	p, err := c.w.take(rg)
	if err != nil {
		c.to.trouble(err)
		c.w.note(c.to.id, "sends short of %s: %v", r.part.name(), err)
		c.shut() // a short file: the frame can not be completed
		return false
	}
	if got := crc32.Checksum(p, castagnoli); got != want {
		c.w.fail("a Range keeps its bytes", "node %d sends %s from %d to %d with other bytes than it held when it was read", c.to.id, r.part.name(), rg.First(), rg.End())
	}
	if !c.serving {
		return false
	}
	if c.w.chance(c.w.plan.BadBytes) {
		c.w.flip(p)
	}
	c.sendDown(feed.AppendFrame(nil, head), p)
	return true
}

// flip breaks one bit of a run of batches on its way, anywhere but in a leader
// epoch: no checksum covers that field.
func (w *world) flip(p []byte) {
	at := w.rand.IntN(len(p))
	begin := 0
	for b, err := range batch.Run(p).Batches() {
		if err != nil || at < begin+len(b) {
			break
		}
		begin += len(b)
	}
	if field := at - begin; field >= epochField && field < epochField+4 {
		at += 4
	}
	p[at] ^= 1 << w.rand.IntN(8)
}

// epochField is where in a batch its leader epoch lies.
const epochField = 12

// failedSend ends the attempt whose records could not be read.
func (c *conn) failedSend(s feed.Send, err error) {
	code := feed.CodeStorage
	switch {
	case errors.Is(err, errStaleAttempt):
		code = feed.CodeNotLeader
	case errors.Is(err, storage.ErrOffsetOutOfRange):
		code = feed.CodeOutOfRange
	}
	c.apply(c.feeder.Failed(nil, s, code))
}

// take reads a Range's bytes, and notes that they were handed out.
func (w *world) take(rg storage.Range) ([]byte, error) {
	h, err := rg.Hold()
	if err != nil {
		return nil, err
	}
	defer h.Release()
	f, ok := h.File().(*diskFile)
	if !ok {
		w.fail("files are the disk's", "%T", h.File())
	}
	p := make([]byte, rg.Len())
	n, _ := f.ReadAt(p, h.Pos()) // how much came tells all
	f.i.served = max(f.i.served, h.Pos()+int64(n))
	if n < len(p) {
		return nil, errShortFile
	}
	return p, nil
}

var errShortFile = errors.New("the file is shorter than the Range")

// expect is the sum of the bytes that a Range must hold, as the model has them.
func (r *replica) expect(rg storage.Range) uint32 {
	p := make([]byte, rg.Len())
	if n, err := rg.ReadAt(p, 0); n < len(p) {
		r.n.w.fail("a Range holds its bytes", "node %d reads %d of %d bytes of %s: %v", r.n.id, n, len(p), r.part.name(), err)
	}
	r.compare(p)
	return crc32.Checksum(p, castagnoli)
}

// compare checks that bytes read are the batches that the log must hold there.
func (r *replica) compare(p []byte) {
	for b, err := range batch.Run(p).Batches() {
		if err != nil {
			r.n.w.fail("logs hold what was appended", "%s on node %d: %v", r.part.name(), r.n.id, err)
		}
		got := recOf(b)
		i := r.j.at(got.base)
		if i == len(r.j.recs) || r.j.recs[i] != got {
			want := rec{}
			if i < len(r.j.recs) {
				want = r.j.recs[i]
			}
			r.n.w.fail("logs hold what was appended", "%s on node %d has %v where %v belongs", r.part.name(), r.n.id, got, want)
		}
	}
}

// suspect checks a batch that a follower received broken.
func (r *replica) suspect(epoch batch.Epoch, at batch.Offset) {
	rg, err := r.readFeed(epoch, at, r.log.End(), 1)
	if err != nil || rg.Len() == 0 {
		return
	}
	defer rg.Release()
	b := make(batch.Batch, rg.FirstBatchLen())
	if n, err := rg.ReadAt(b, 0); n < len(b) {
		r.n.trouble(err)
		return
	}
	if b.CheckCRC() == nil && b.Base() <= at {
		return // it broke on its way
	}
	r.corrupt = at
	r.n.damagedReplica(r)
}
