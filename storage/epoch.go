package storage

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/weirmq/weir/wire/batch"
)

// epochStart says that the batches of an epoch begin at an offset.
type epochStart struct {
	epoch batch.Epoch
	start batch.Offset
}

// epochs are the leader epochs of a log's batches, oldest first, both numbers
// rising. They are derived from the batches; the file only spares reading them.
// A value is never changed in place but by add, so that a slice taken under the
// log's lock stays what it was.
type epochs []epochStart

// last is the newest epoch, or NoEpoch.
func (es epochs) last() batch.Epoch {
	if len(es) == 0 {
		return batch.NoEpoch
	}
	return es[len(es)-1].epoch
}

// add notes a batch; it does nothing when its epoch is known. An epoch that begins
// where the new one does has no batches (the log's start passed them) and goes.
func (es epochs) add(e batch.Epoch, base batch.Offset) epochs {
	if e <= es.last() {
		return es
	}
	if n := len(es); n > 0 && es[n-1].start >= base {
		es = es.cutEnd(base)
	}
	return append(es, epochStart{e, base})
}

// end returns the largest epoch at or below e with the offset after its last
// batch; NoEpoch and start when there is none.
func (es epochs) end(e batch.Epoch, start, end batch.Offset) (batch.Epoch, batch.Offset) {
	i := len(es) - 1
	for i >= 0 && es[i].epoch > e {
		i--
	}
	switch {
	case i < 0:
		return batch.NoEpoch, start
	case i == len(es)-1:
		return es[i].epoch, end
	}
	return es[i].epoch, es[i+1].start
}

// at returns the epoch of the batch at an offset, NoEpoch when it lies below all
// that is known.
func (es epochs) at(o batch.Offset) batch.Epoch {
	i := sort.Search(len(es), func(i int) bool { return es[i].start > o })
	if i == 0 {
		return batch.NoEpoch
	}
	return es[i-1].epoch
}

// cutEnd returns the epochs of the batches below end.
func (es epochs) cutEnd(end batch.Offset) epochs {
	n := len(es)
	for n > 0 && es[n-1].start >= end {
		n--
	}
	return slices.Clone(es[:n])
}

// cutStart returns the epochs of the batches from start on; the one that covers
// start begins there now.
func (es epochs) cutStart(start batch.Offset) epochs {
	i := 0
	for i+1 < len(es) && es[i+1].start <= start {
		i++
	}
	out := slices.Clone(es[i:])
	if len(out) > 0 {
		out[0].start = max(out[0].start, start)
	}
	return out
}

// passed returns the epoch of the last batch before start, beginning there: all that
// a log without a batch knows of its history.
func (es epochs) passed(start batch.Offset) epochs {
	n := len(es)
	for n > 0 && es[n-1].start > start {
		n--
	}
	if n == 0 {
		return nil
	}
	return epochs{{es[n-1].epoch, start}}
}

func (es epochs) encode() []byte {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = fmt.Sprintf("%d %d", e.epoch, e.start)
	}
	return encodeLines(lines)
}

func parseEpochs(data []byte) (epochs, error) {
	lines, err := parseLines(data, 2)
	if err != nil {
		return nil, err
	}
	var out epochs
	for _, parts := range lines {
		epoch, err1 := strconv.ParseInt(parts[0], 10, 32)
		start, err2 := strconv.ParseInt(parts[1], 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("line %q is not epoch and offset", strings.Join(parts, " "))
		}
		next := epochStart{batch.Epoch(epoch), batch.Offset(start)}
		if n := len(out); n > 0 && (next.epoch <= out[n-1].epoch || next.start < out[n-1].start) {
			return nil, fmt.Errorf("line %q does not rise", strings.Join(parts, " "))
		}
		out = append(out, next)
	}
	return out, nil
}
