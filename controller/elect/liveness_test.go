package elect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/fsm"
)

// TestLiveness runs the scripts of testdata/liveness. Times are in milliseconds
// from the start of the script; the session is 3 s. Each step prints its answer
// and every session: its epoch, how much of it is left, and the evidence.
func TestLiveness(t *testing.T) {
	datadriven.Walk(t, "testdata/liveness", func(t *testing.T, path string) {
		s := &livenessScript{l: NewLiveness(3 * time.Second), im: fsm.NewImage()}
		datadriven.RunTest(t, path, s.step)
	})
}

type livenessScript struct {
	l   *Liveness
	im  *fsm.Image
	now time.Time
}

func (s *livenessScript) step(t *testing.T, d *datadriven.TestData) string {
	var at, epoch int
	var id int
	d.MaybeScanArgs(t, "at", &at)
	d.MaybeScanArgs(t, "id", &id)
	if d.HasArg("at") {
		s.now = time.UnixMilli(1_000_000 + int64(at))
	}
	broker := fsm.BrokerID(id)
	b, _ := s.im.Broker(broker)
	epoch = int(b.Epoch)
	d.MaybeScanArgs(t, "epoch", &epoch)
	e := fsm.BrokerEpoch(epoch)
	answer := ""
	switch d.Cmd {
	case "register":
		return s.apply(t, fsm.RegisterBroker{ID: broker, Folder: [16]byte{byte(id)}, Process: [16]byte{1, byte(b.Epoch)}, Replaces: b.Epoch})
	case "unfence":
		return s.apply(t, fsm.UnfenceBroker{ID: broker, Epoch: e})
	case "fence":
		return s.apply(t, fsm.FenceBroker{ID: broker, Epoch: e})
	case "takeover":
		s.l.Takeover(s.now, s.im)
	case "unheard":
		var since int
		d.ScanArgs(t, "since", &since)
		s.l.Unheard(broker, time.UnixMilli(1_000_000+int64(since)), s.now)
	case "heartbeat":
		answer = fmt.Sprintln(s.l.Heartbeat(broker, e, s.now))
	case "reported":
		answer = fmt.Sprintln("dial:", s.l.Reported(broker, e, s.now))
	case "refused":
		s.l.Refused(broker, e, s.now)
	case "live":
		answer = fmt.Sprintln(s.l.Live(broker, e, s.now))
	case "expired":
		for _, f := range s.l.Expired(s.now, s.im) {
			answer += fmt.Sprintf("fence %d@%d\n", f.ID, f.Epoch)
		}
	default:
		t.Fatalf("%s: unknown step %q", d.Pos, d.Cmd)
	}
	return answer + s.show()
}

func (s *livenessScript) apply(t *testing.T, c fsm.Command) string {
	var r fsm.Result
	if s.im, r = fsm.Apply(s.im, s.im.Index()+1, c); r.Err != nil {
		t.Fatalf("%#v: %v", c, r.Err)
	}
	var out strings.Builder
	for b := range s.im.Brokers() {
		fmt.Fprintf(&out, "broker %d@%d fenced %v\n", b.ID, b.Epoch, b.Fenced)
	}
	return out.String()
}

func (s *livenessScript) show() string {
	var out strings.Builder
	for id := fsm.BrokerID(1); id < 10; id++ {
		if session, ok := s.l.sessions[id]; ok {
			fmt.Fprintf(&out, "%d@%d left %dms", id, session.epoch, session.deadline.Sub(s.now).Milliseconds())
			if session.reported {
				out.WriteString(" reported")
			}
			if session.refused {
				out.WriteString(" refused")
			}
			out.WriteString("\n")
		}
	}
	fmt.Fprintf(&out, "wake in %dms\n", s.l.WakeAt().Sub(s.now).Milliseconds())
	return out.String()
}
