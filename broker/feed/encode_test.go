package feed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirmq/weir/broker/feed"
	"github.com/weirmq/weir/broker/isr"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestEncoding pins the bytes of each frame, and what is refused.
func TestEncoding(t *testing.T) {
	datadriven.RunTest(t, "testdata/frames.txt", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			switch d.Cmd {
			case "encode":
				p := feed.AppendFrame(nil, parse(t, line))
				fmt.Fprintf(&b, "%x %x\n", p[:feed.HeadSize], p[feed.HeadSize:])
			case "decode":
				p, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				f, rest, err := feed.DecodeFrame(p)
				if err != nil {
					fmt.Fprintf(&b, "error: %v\n", err)
					continue
				}
				fmt.Fprintf(&b, "%s, %d bytes left\n", show(f, tpName), len(rest))
			}
		}
		return b.String()
	})
}

var everyFrame = []string{
	"FOLLOW h1 a2 p epoch=3 written=30 flushed=20 last=2 start=10",
	"FOLLOW h1 a2 p epoch=0 written=0 flushed=0 last=-1 start=0",
	"FEED h1 a2 hw=5 start=4 size=1000",
	"PROGRESS h1 a2 written=30 flushed=20 start=10",
	"MARK h1 a2 hw=5 start=4",
	"DIVERGED h1 a2 epoch=-1 end=4",
	"REFUSED h1 a2 out-of-range start=3 end=4",
	"BAD h1 a2 offset=9",
	"UNFOLLOW h1 a2",
	"PING 7",
	"PONG 7",
}

func TestReadFrame(t *testing.T) {
	var stream []byte
	for _, s := range everyFrame {
		stream = feed.AppendFrame(stream, parse(t, s))
	}
	r := bytes.NewReader(stream)
	var scratch []byte
	for _, want := range everyFrame {
		f, err := feed.ReadFrame(r, &scratch)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if got := strings.NewReplacer("(", "", ")", "").Replace(show(f, tpName)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := feed.ReadFrame(r, &scratch); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %v, want io.EOF", err)
	}
	for n := range len(stream) {
		_, _, err := feed.DecodeFrame(stream[:min(n, 56)])
		if n < 57 && !errors.Is(err, feed.ErrShort) {
			t.Errorf("%d bytes of a frame: got %v, want ErrShort", n, err)
		}
	}
	if _, err := feed.ReadFrame(bytes.NewReader(stream[:30]), &scratch); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut inside a frame: got %v, want io.ErrUnexpectedEOF", err)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range everyFrame {
		f.Add(feed.AppendFrame(nil, parse(nil, s)))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		fr, rest, err := feed.DecodeFrame(p)
		if err != nil {
			if !errors.Is(err, feed.ErrShort) && !errors.Is(err, feed.ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if again := feed.AppendFrame(nil, fr); !bytes.Equal(again, p[:len(p)-len(rest)]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", p, fr, again)
		}
	})
}

// fixedView is a leader's node with one partition.
type fixedView struct{ log *modelLog }

// Leading implements feed.View.
func (v fixedView) Leading(p fsm.TopicPartition) (feed.Leading, feed.Code) {
	if p != theTP {
		return feed.Leading{}, feed.CodeUnknown
	}
	return feed.Leading{Epoch: 3, Start: v.log.start, End: v.log.end(), HW: v.log.end()}, feed.CodeNone
}

// EpochEnd implements feed.View.
func (v fixedView) EpochEnd(_ fsm.TopicPartition, e batch.Epoch) (batch.Epoch, batch.Offset) {
	return v.log.epochEnd(e)
}

// FuzzReceive gives both machines any frames at all: they may close the
// connection, but neither panics nor counts what it cannot know.
func FuzzReceive(f *testing.F) {
	var all []byte
	for _, s := range everyFrame {
		all = feed.AppendFrame(all, parse(nil, s))
	}
	f.Add(all, byte(3))
	f.Fuzz(func(t *testing.T, p []byte, pause byte) {
		log := newModelLog()
		for i := range 40 {
			log.append(record{batch.Epoch(i / 10), i})
		}
		now := time.Unix(1_000_000, 0)
		view := fixedView{log}
		d := feed.NewFeeder(isr.Member{ID: 2, Epoch: 2}, feed.DefaultWindow())
		w := feed.NewFollower()
		w.Add(theTP, 3, log.local())
		for n := 0; len(p) > 0; n++ {
			fr, rest, err := feed.DecodeFrame(p)
			if err != nil {
				return
			}
			p = rest
			vs, errLeader := d.Receive(nil, fr, view)
			for _, v := range vs {
				if v.Position.Written > log.end() {
					t.Fatalf("%+v counts past the end", v)
				}
			}
			as, errFollower := w.Receive(nil, fr, now)
			for _, a := range as {
				if a.Kind == feed.ActionTruncate && feed.CutTo(a.Epoch, a.End, log.epochEnd) >= log.end() {
					t.Fatalf("%+v cuts nothing", a)
				}
			}
			if errLeader != nil && errFollower != nil {
				return
			}
			if n%(int(pause)+1) == 0 {
				w.Pending(nil, 3, now)
				if out := d.Next(view, now); out.Kind == feed.OutSend {
					d.Sent(out.Send, out.Send.From+1, 100)
				}
			}
			if d.InFlight() < 0 {
				t.Fatalf("%d bytes in flight", d.InFlight())
			}
		}
	})
}
