package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

func arg(t *testing.T, d *datadriven.TestData, name string) int64 {
	t.Helper()
	var v int64
	d.ScanArgs(t, name, &v)
	return v
}

// windowScript is a producer window with a clock and the next offset.
type windowScript struct {
	ps     producers
	offset batch.Offset
	now    int64
}

func (s *windowScript) run(t *testing.T, d *datadriven.TestData) string {
	s.now += 10
	switch d.Cmd {
	case "send", "replicate":
		return s.append(t, d)
	case "show":
		return s.String()
	case "restart":
		data := s.ps.encode()
		s.ps = producers{max: s.ps.max}
		if err := s.ps.decode(data, s.now); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("snapshot of %d bytes\n", len(data))
	case "expire":
		s.ps.expire(s.now - arg(t, d, "after"))
		return ""
	case "limit":
		s.ps.max = int(arg(t, d, "producers"))
		return ""
	}
	return "unknown command"
}

func (s *windowScript) append(t *testing.T, d *datadriven.TestData) string {
	b := producerBatchOf(arg(t, d, "id"), int16(arg(t, d, "epoch")), int32(arg(t, d, "seq")), int(arg(t, d, "n")))
	if d.Cmd == "send" && b.HasProducer() {
		original, found, err := s.ps.check(sequenceOf(b))
		if err != nil {
			return "refused: " + err.Error() + "\n"
		}
		if found {
			return fmt.Sprintf("duplicate of %d..%d\n", original.firstOffset(), original.lastOffset)
		}
	}
	b.Assign(s.offset, 0)
	s.offset = b.End()
	s.ps.noteBatch(b, s.now)
	return fmt.Sprintf("appended at %d..%d\n", b.Base(), b.Last())
}

func (s *windowScript) String() string { return showProducers(&s.ps) }

func showProducers(ps *producers) string {
	var out strings.Builder
	for _, id := range slices.Sorted(maps.Keys(ps.byID)) {
		p := ps.byID[id]
		fmt.Fprintf(&out, "producer %d epoch %d used %d:", id, p.epoch, p.used)
		for _, b := range p.batches[:p.n] {
			fmt.Fprintf(&out, " %d..%d at %d..%d", b.firstSeq(), b.lastSeq, b.firstOffset(), b.lastOffset)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func TestProducerScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/producer", func(t *testing.T, path string) {
		s := &windowScript{}
		datadriven.RunTest(t, path, s.run)
	})
}

func TestEpochScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/epochs", func(t *testing.T, path string) {
		m := vfs.NewMem(1)
		dir := mustOpen(t, m, testOptions())
		l := mustCreate(t, dir, "t", 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var err error
			switch d.Cmd {
			case "append":
				_, err = l.AppendLeader(makeBatch(int(arg(t, d, "n")), 1000, 10), batch.Epoch(arg(t, d, "epoch")))
			case "truncate":
				err = l.TruncateTo(batch.Offset(arg(t, d, "to")))
			case "advance":
				err = l.AdvanceStart(batch.Offset(arg(t, d, "to")))
			case "reset":
				err = l.ResetTo(batch.Offset(arg(t, d, "to")))
			case "end":
				e, end := l.EpochEnd(batch.Epoch(arg(t, d, "epoch")))
				return fmt.Sprintf("epoch %d ends at %d\n", e, end)
			case "kill": // the process ends, and begins anew
				next := m.ProcessClone()
				mustClose(t, dir)
				m, dir = next, mustOpen(t, next, testOptions())
				l = dir.Log("t", 0)
			case "restart": // in order
				mustClose(t, dir)
				dir = mustOpen(t, m, testOptions())
				l = dir.Log("t", 0)
			case "file":
				if err = l.Flush(); err == nil {
					var data []byte
					if data, err = vfs.ReadFile(m, l.filePath(epochFile)); err == nil {
						return string(data)
					}
				}
			default:
				return "unknown command"
			}
			if err != nil {
				return err.Error() + "\n"
			}
			return fmt.Sprintf("log %d..%d, last epoch %d\n", l.Start(), l.End(), l.LastEpoch())
		})
		mustClose(t, dir)
	})
}
