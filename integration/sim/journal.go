package sim

import (
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/weirmq/weir/wire/batch"
)

// castagnoli is the table of the sums. It is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rec is one batch as it lies in a log.
type rec struct {
	base, end batch.Offset
	epoch     batch.Epoch
	sum       uint32 // of all its bytes
	producer  int64
	sequence  int32
}

func recOf(b batch.Batch) rec {
	return rec{
		base: b.Base(), end: b.End(), epoch: b.Epoch(), sum: crc32.Checksum(b, castagnoli),
		producer: b.ProducerID(), sequence: b.FirstSequence(),
	}
}

func (r rec) String() string {
	return fmt.Sprintf("[%d,%d)@%d %08x p%d/%d", r.base, r.end, r.epoch, r.sum, r.producer, r.sequence)
}

// journal is what one log must hold: every batch that was appended and not cut.
// It outlives the process, as the disk does.
type journal struct {
	start batch.Offset
	recs  []rec
	same  batch.Offset // all below is equal to what was committed
}

func (j *journal) end() batch.Offset {
	if n := len(j.recs); n > 0 {
		return j.recs[n-1].end
	}
	return j.start
}

// at is the index of the batch that holds an offset, or len(recs).
func (j *journal) at(o batch.Offset) int {
	return sort.Search(len(j.recs), func(i int) bool { return j.recs[i].end > o })
}

func (j *journal) append(b batch.Batch) {
	r := recOf(b)
	j.recs = append(j.recs, r)
}

// cut drops everything from the batch that holds end on.
func (j *journal) cut(end batch.Offset) {
	j.recs = j.recs[:j.at(end)]
	j.same = min(j.same, j.end())
}

func (j *journal) reset(start batch.Offset) {
	j.start, j.recs = start, nil
	j.same = start
}

// advance moves the log start: batches that lie wholly below it are gone.
func (j *journal) advance(start batch.Offset) {
	if start <= j.start {
		return
	}
	j.recs = j.recs[j.at(start):]
	j.start = start
	j.same = max(j.same, start)
}

// follow compares what is new with what was committed and returns the first
// batch that differs.
func (j *journal) follow(p *part) (mine, committed rec, ok bool) {
	j.same = max(j.same, min(j.start, p.end))
	if j.same >= p.end || j.same >= j.end() {
		return rec{}, rec{}, true
	}
	i, k := j.at(j.same), p.at(j.same)
	for i < len(j.recs) && k < len(p.recs) {
		if j.recs[i] != p.recs[k] {
			return j.recs[i], p.recs[k], false
		}
		j.same = p.recs[k].end
		i, k = i+1, k+1
	}
	return rec{}, rec{}, true
}
