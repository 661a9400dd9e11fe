package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/storage/vfs"
	"github.com/weirmq/weir/wire/batch"
)

// failoverScript is the replicas of one partition, each a log in a folder of its own: they lead
// and follow as the script says. Every step prints the log that it was about.
type failoverScript struct {
	passed time.Duration // by the clock that counts for producers
	disks  map[string]*vfs.Mem
	dirs   map[string]*Dir
}

func TestFailoverScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/failover", func(t *testing.T, path string) {
		s := &failoverScript{disks: map[string]*vfs.Mem{}, dirs: map[string]*Dir{}}
		datadriven.RunTest(t, path, s.run)
		for _, d := range s.dirs {
			mustClose(t, d)
		}
	})
}

func (s *failoverScript) options() Options {
	o := testOptions()
	o.Steady = func() time.Duration { return s.passed }
	return o
}

// log is the log of the replica that a step names.
func (s *failoverScript) log(t *testing.T, name string) *Log {
	t.Helper()
	if s.dirs[name] == nil {
		s.disks[name] = vfs.NewMem(1)
		s.dirs[name] = mustOpen(t, s.disks[name], s.options())
		mustCreate(t, s.dirs[name], "t", 0)
	}
	return s.dirs[name].Log("t", 0)
}

func (s *failoverScript) run(t *testing.T, d *datadriven.TestData) string {
	var name string
	d.ScanArgs(t, "to", &name)
	l, said := s.log(t, name), ""
	switch d.Cmd {
	case "send": // to the leader of an epoch
		said = s.send(t, d, l)
	case "replicate": // from the leader
		var from string
		d.ScanArgs(t, "from", &from)
		catchUp(t, s.log(t, from), l)
	case "cut": // to what it shares with its leader
		if err := l.TruncateTo(batch.Offset(arg(t, d, "end"))); err != nil {
			return err.Error() + "\n"
		}
	case "trim":
		if err := l.AdvanceStart(batch.Offset(arg(t, d, "start"))); err != nil {
			return err.Error() + "\n"
		}
	case "kill": // its process, which begins anew
		next := s.disks[name].ProcessClone()
		mustClose(t, s.dirs[name])
		s.disks[name], s.dirs[name] = next, mustOpen(t, next, s.options())
		l = s.dirs[name].Log("t", 0)
	case "wait":
		s.passed += time.Duration(arg(t, d, "hours")) * time.Hour
		s.dirs[name].expireProducers(s.passed)
	default:
		return "unknown command"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return said + fmt.Sprintf("log %d..%d\n", l.Start(), l.End()) + showProducers(&l.producers)
}

func (s *failoverScript) send(t *testing.T, d *datadriven.TestData, l *Log) string {
	b := producerBatchOf(arg(t, d, "id"), int16(arg(t, d, "epoch")), int32(arg(t, d, "seq")), int(arg(t, d, "n")))
	a, err := l.AppendLeader(b, batch.Epoch(arg(t, d, "leader-epoch")))
	switch {
	case err != nil:
		_, why, _ := strings.Cut(err.Error(), ": ")
		return "refused: " + why + "\n"
	case a.Duplicate:
		return fmt.Sprintf("duplicate of %d..%d\n", a.First, a.Last)
	}
	return fmt.Sprintf("appended at %d..%d\n", a.First, a.Last)
}
